"""Kinds of cache bugs, one for each idea that goes wrong, regardless of the engine."""

KINDS = {
    "abort during load": "a request ends while the external tier loads its blocks",
    "alignment": "a hit ends only where the blocks of all groups end together, and that is far away",
    "block table": "a row of the batch reads through a wrong block table",
    "boundary": "a length at the edge of a block is counted one token too early or too late",
    "chain": "a block's hash does not stand for all tokens before it",
    "deadlock": "requests wait for each other, and no step computes a token",
    "double allocation": "the pool gives out a block that a request already counts on",
    "double free": "a reference is dropped twice",
    "duplicate": "equal content stays in several live blocks",
    "external tier": "a block on its way to or from the external tier is evicted, overwritten or forgotten",
    "extra keys": "an input of the KV besides the tokens is missing from the hash, or mistaken for another",
    "free in flight": "a block is freed while a step or a transfer still uses it",
    "full hit": "the cache holds a complete prompt, and no token is left to compute",
    "hit in flight": "a hit on a block whose KV no step has written",
    "LRU": "the order of the free queue evicts the most useful blocks",
    "merge": "a duplicate is freed, and something still points at it",
    "padding": "rows that pad a batch write or read slots of requests",
    "partial tail": "two requests write to one block that is not full",
    "preemption": "a request gives its blocks back, and no other request benefits",
    "speculation": "a rejected guess, or the room for it, is taken for a token",
    "state": "the state of recurrent layers is kept, found or copied at the wrong position",
    "weak hash": "different content has the same hash",
    "window": "a sliding window's blocks are freed too early or kept too long",
}
"""The error, by kind."""
