"""One event in one sentence, from the event alone: exact ids, no state needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from labengine import events as ev
from labengine_widgets.words.names import block_name, counted, listed, readable, request_name

HASH_DIGITS = 8
"""Hexadecimal digits of a hash that a sentence shows."""


def tell(event: ev.Event) -> str:
    """What happened. Any kind of event has a sentence."""
    teller = _TELLERS.get(type(event))
    return teller(event) if teller is not None else f"{type(event).__name__} happened."


def variant(event: ev.Event) -> str:
    """Which of several decisions a kind of event stands for: its reason, or "tail"; empty when there is but one."""
    if isinstance(event, ev.BlockCached):
        return "" if event.is_full else "tail"
    return str(getattr(event, "reason", ""))


def hash_name(block_hash: bytes) -> str:
    """The first digits of a hash."""
    return block_hash.hex()[:HASH_DIGITS] + "…"


def entry(event: Any) -> str:
    """A place in a block table, as an engine developer counts: from 0. The first group goes without saying."""
    return place(event.request_id, event.group, event.index)


def place(request_id: int, group: int, index: int) -> str:
    """The same for a place without an event."""
    return f"{request_name(request_id)}'s table[{index}]" + (f" of group {group}" if group else "")


def refs(count: int) -> str:
    """'ref 2'."""
    return f"ref {count}"


def blocks(ids: Iterable[int]) -> str:
    """'#0, #1 and #2', each once."""
    return listed(map(block_name, dict.fromkeys(ids)))


def _engine_started(e: ev.EngineStarted) -> str:
    free = f"The engine started with {counted(e.num_blocks - (e.null_block >= 0), 'free block')}, in order of their ids"
    return f"{free}." if e.null_block < 0 else f"{free}; {block_name(e.null_block)} is set aside as the null block."


def _request_added(e: ev.RequestAdded) -> str:
    return f"{request_name(e.request_id)} joined the line with {counted(len(e.token_ids), 'token')}."


def _prefix_hit(e: ev.PrefixHit) -> str:
    name = request_name(e.request_id)
    if not e.num_tokens:
        return f"{name} looked its prompt up in the hash map, and found nothing."
    return f"{name} looked its prompt up in the hash map, and found its first {counted(e.num_tokens, 'token')}."


def _scheduled(e: ev.RequestScheduled) -> str:
    last, name = e.start + e.num_tokens - 1, request_name(e.request_id)
    what = f"the token at position {e.start}" if e.num_tokens == 1 else f"its tokens {e.start} to {last}"
    return f"{name} got its turn: the step computes {what}."


def _finished(e: ev.RequestFinished) -> str:
    why = {"stop": "it said its end-of-text token", "length": "it has all its tokens", "abort": "it was aborted"}
    return f"{request_name(e.request_id)} is finished: {why.get(e.reason, readable(e.reason))}."


def _external_hit(e: ev.ExternalHit) -> str:
    name, tokens = request_name(e.request_id), counted(e.num_tokens, "token")
    return f"The external tier has {name}'s next {tokens}{', and it waits for them' if e.is_loading else ''}."


def _evicted(e: ev.BlockEvicted) -> str:
    why = {
        "reused": "it is given to somebody else",
        "replaced": "it goes by a longer prefix now",
        "reset": "the cache was reset",
        "distrusted": "a broken step may have written to it",
    }
    return f"What {block_name(e.block_id)} held was forgotten, in the map too: {why.get(e.reason, e.reason)}."


def _allocated(e: ev.BlockAllocated) -> str:
    return f"{block_name(e.block_id)} was taken from the front of the free queue for {entry(e)}."


def _touched(e: ev.BlockTouched) -> str:
    name = block_name(e.block_id)
    if e.ref_count == 1:
        return f"{name} was found by its hash and taken back out of the free queue for {entry(e)}."
    return f"{name} was found by its hash and is shared: {entry(e)} points at it too."


def _cached(e: ev.BlockCached) -> str:
    name, key = block_name(e.block_id), hash_name(e.block_hash)
    if e.block_id not in e.mapped:
        return f"{name} is full, but the map was not led to it: under hash {key} it has {blocks(e.mapped)}."
    if len(e.mapped) > 1:
        return f"{name} went into the map under hash {key}, beside others: {blocks(e.mapped)}."
    what = "is full" if e.is_full else "holds the end of a prompt"
    return f"{name} {what}: the map leads from hash {key} to it now."


def _merged(e: ev.BlockMerged) -> str:
    return (
        f"{entry(e)} was turned from its own copy {block_name(e.block_id)} to the equal {block_name(e.into_block_id)}."
    )


def _freed(e: ev.BlockFreed) -> str:
    why = {
        "finished": "it finished",
        "aborted": "it was aborted",
        "preempted": "it was preempted",
        "merged": "its copy was merged away",
        "window": "it left the window",
    }
    told = f"{request_name(e.request_id)} let go of {block_name(e.block_id)}: {why.get(e.reason, e.reason)}"
    if e.queue_end is None:
        return f"{told}; others still hold it."
    return f"{told}. Free, it went to the {'front' if e.queue_end == 'head' else 'end'} of the queue."


def _slots(e: ev.SlotsWritten) -> str:
    ids, end = [block_id for block_id, _, _ in e.runs], e.start + sum(n for _, _, n in e.runs)
    which = f"position {e.start}" if end == e.start + 1 else f"positions {e.start} to {end - 1}"
    return f"The keys and values of {request_name(e.request_id)}'s {which} were written into {blocks(ids)}."


def _transfers(told: str) -> Callable[[Any], str]:
    return lambda e: told.format(name=request_name(e.request_id), blocks=blocks(t[2] for t in e.transfers))


_TELLERS: dict[type[ev.Event], Callable[[Any], str]] = {
    ev.EngineStarted: _engine_started,
    ev.StepStarted: lambda e: f"Step {e.step} began.",
    ev.StepEnded: lambda e: f"Step {e.step} was over.",
    ev.StepFailed: lambda e: (
        f"Step {e.step} failed in {readable(e.method)}: {readable(e.error)}: {readable(e.message, 200)}."
    ),
    ev.StepRolledBack: lambda e: f"Step {e.step} was broken off ({readable(e.reason)}) and undone.",
    ev.RequestAdded: _request_added,
    ev.PrefixHit: _prefix_hit,
    ev.RequestScheduled: _scheduled,
    ev.RequestPreempted: lambda e: f"{request_name(e.request_id)} was preempted: it waits, and starts over.",
    ev.RequestFinished: _finished,
    ev.RequestForgotten: lambda e: f"{request_name(e.request_id)} was kept no longer: newer requests had finished.",
    ev.ExternalHit: _external_hit,
    ev.BlocksLoaded: _transfers("Keys and values came from the external tier into {name}'s {blocks}."),
    ev.BlocksSaved: _transfers("{name}'s full {blocks} were copied to the external tier."),
    ev.LoadFailed: lambda e: f"{request_name(e.request_id)}'s load failed: {readable(e.reason)}.",
    ev.PrefixCacheReset: lambda e: "The whole cache was reset.",
    ev.BlockEvicted: _evicted,
    ev.BlockAllocated: _allocated,
    ev.BlocksSkipped: lambda e: (
        f"{request_name(e.request_id)}'s table of group {e.group} begins with null: nobody reads its first "
        f"{counted(e.num_blocks, 'block')}."
    ),
    ev.BlockTouched: _touched,
    ev.BlockCached: _cached,
    ev.BlockMerged: _merged,
    ev.BlockFreed: _freed,
    ev.SlotsWritten: _slots,
    ev.ForwardRan: lambda e: f"The model ran once, over {counted(e.num_tokens, 'token')}.",
    ev.TokensComputed: lambda e: (
        f"{request_name(e.request_id)} has keys and values for its first {counted(e.num_computed_tokens, 'token')}."
    ),
    ev.TokenSampled: lambda e: f"{request_name(e.request_id)}'s token at position {e.position} was sampled.",
    ev.ViolationFound: lambda e: f"A rule was found broken: {readable(e.message, 200)}.",
}
