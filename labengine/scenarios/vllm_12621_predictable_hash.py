"""vLLM pull request 12621: blocks that collide under Python's hash(), mostly regardless of how the chain begins.

V0's block manager hashed the tuple (is_first_block, previous hash, *tokens, extra_hash). Since Python 3.12 hash(None),
the previous hash of a first block, is the same in every process; the pull request begins with a random number instead.
But integers hash to themselves, and a tuple's hash is a few additions, rotations and multiplications, so changes of a
few tokens can cancel, often without any knowledge of the tokens before them. V1's key held the tokens beside the hash,
so there two first blocks with the same hash had different keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from labengine.core.hash_chain import HashChain
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Scenario, Table

HASH_OF_NONE = 0xFCA86420
"""hash(None) in CPython 3.12 and later, on every machine. The extra_hash of a request without adapter is None too."""


def block_hash(is_first: bool, before: int, token_ids: Sequence[int]) -> int:
    """Return V0's hash of a block: Python's 64-bit hash of a tuple."""
    return hash((is_first, before, *token_ids, HASH_OF_NONE))


class BuiltinHash(HashChain):
    """The hash before the pull request."""

    start = HASH_OF_NONE

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return Python's hash of the block and the previous hash."""
        before = int.from_bytes(parent_hash, "little", signed=True) if parent_hash else self.start
        return block_hash(not parent_hash, before, token_ids).to_bytes(8, "little", signed=True)


class RandomStart(BuiltinHash):
    """The pull request: the chain begins with a number unknown to an attacker."""

    start = Random("a secret").getrandbits(60)


VOCABULARY = 128_000
DIFFERENCES = (85_087, 75_418, 78_482, 10_072, 59_306)
"""Added to five consecutive tokens, they leave a tuple's hash unchanged after about three of four previous states.

A token is added to the state times a constant; the state is rotated and multiplied. A difference passes a rotation
unchanged unless a carry crosses an end of the rotated word. These five differences, all below the vocabulary's size,
cancel with likely carries; they were found by a search of all pairs from both ends, which meet in the middle.
"""


def colliding_block(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return the block with its last five tokens changed, which has the same hash after most parents."""
    first = len(token_ids) - len(DIFFERENCES)
    changed = (token + more for token, more in zip(token_ids[first:], DIFFERENCES, strict=True))
    return (*token_ids[:first], *changed)


def num_colliding_starts(token_ids: tuple[int, ...], num_starts: int) -> int:
    """Return for how many of num_starts random starts the block and its colliding block have the same hash."""
    rng, other = Random(12621), colliding_block(token_ids)
    starts = [rng.getrandbits(60) for _ in range(num_starts)]
    return sum(block_hash(True, start, token_ids) == block_hash(True, start, other) for start in starts)


class PredictableHash(Scenario):
    """An attacker knows the beginning of a prompt, and sends another prompt whose first block has the same hash."""

    columns = (Column("vllm", BuiltinHash), Column("vllm"), Column("vllm", RandomStart))
    block_size = 8
    known_prompt = tuple(range(1, 26))
    """B's prompt: three full blocks and one more token."""
    figures = {
        "tokens that B finds": lambda lab: num_hit_tokens(lab, 1),
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run the colliding prompt, then the known one."""
        known = self.known_prompt
        for prompt in (colliding_block(known[: self.block_size]) + known[self.block_size :], known):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.step()

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"starts": num_colliding_starts(self.known_prompt[: self.block_size], 1000)}
