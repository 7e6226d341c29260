"""vLLM pull request 12621: block hashes made with Python's hash() collide on purpose, whatever the chain begins with.

vLLM's block manager hashed the tuple (is_first_block, previous hash, *tokens). Since Python 3.12 hash(None), the
previous hash of a first block, is the same in every process; the pull request begins with a random number instead. But
integers hash to themselves, and a tuple's hash is a few additions, rotations and multiplications: a change of one token
can be made up for by the next one, nearly always without knowing what stands before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_cache import HashChain
from labengine.events import PrefixHit, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.figures import num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings

HASH_OF_NONE = 0xFCA86420
"""hash(None) in CPython 3.12 and later, on every machine."""


class BuiltinHash(HashChain):
    """The hash before the pull request."""

    start = HASH_OF_NONE

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return Python's hash of the block and the hash before it: 64 bits."""
        before = int.from_bytes(parent_hash, "little") if parent_hash else self.start
        return hash((not parent_hash, before, *token_ids)).to_bytes(8, "little", signed=True)


class RandomStart(BuiltinHash):
    """The pull request: the chain begins with a number that an attacker does not know."""

    start = Random("a secret").getrandbits(60)


PREDICTABLE = Column(
    "hash(None)",
    Parts(name="vllm, hash(None)", hash_chain=BuiltinHash).overriding(VLLM),
    "Hashes with Python's hash() from a constant: a colliding block can be computed.",
)
FIXED = Column("SHA-256", "vllm", "Hashes with SHA-256: no way is known to make two blocks collide.")
RANDOM = Column(
    "random start",
    Parts(name="vllm, random start", hash_chain=RandomStart).overriding(VLLM),
    "12621: Python's hash() from a random number. A collision does not depend on it.",
)

_PRIME_1, _PRIME_2 = 11400714785074694791, 14029467366897019727
"""CPython's tuple hash: state = rotated(state + item * _PRIME_2, 31 bits) * _PRIME_1 for each item, modulo 2**64."""
_MASK = 2**64 - 1


@cache
def colliding_block(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return the block with other last two tokens, and the same hash behind nearly every parent.

    Adding d to the last token but one adds d * _PRIME_2 to the state. If that carries neither out of the low 33 bits
    nor out of the high 31, the rotation only moves the difference, and the last token cancels it. d is chosen for its
    small parts, which seldom carry, and for a last token below 2**61 - 1, where integers hash to themselves.
    """
    undo = pow(_PRIME_2, -1, 2**64)
    found = []
    for d in range(1, 20_000):
        high, low = divmod(d * _PRIME_2 & _MASK, 2**33)
        last = token_ids[-1] - ((low << 31) + high) * _PRIME_1 * undo & _MASK
        if last < 2**61 - 1:
            found.append((max(high / 2**31, low / 2**33), d, last))
    _, d, last = min(found)
    return (*token_ids[:-2], token_ids[-2] + d, last)


def num_colliding_starts(token_ids: tuple[int, ...], num_starts: int) -> int:
    """Return behind how many of num_starts random numbers the block and its colliding one have the same hash."""
    rng, other = Random(12621), colliding_block(token_ids)
    starts = [rng.getrandbits(60) for _ in range(num_starts)]
    return sum(hash((True, start, *token_ids)) == hash((True, start, *other)) for start in starts)


class PredictableHash(Scenario):
    """An attacker knows how a prompt begins, and sends another one whose first block has the same hash."""

    id = "vllm-12621"
    title = "Block hashes made with hash() can be made to collide"
    url = "https://github.com/vllm-project/vllm/pull/12621"
    upstream = "Merged: pull request 12621, in vLLM 0.7.2. SHA-256 came with pull request 15297."
    claim = (
        "With a predictable hash(None), an attacker who knows a prompt can compute one that collides with it, and fill "
        "the cache with wrong KV. A chain that begins with a random value makes that much more difficult."
    )
    kind = "weak hash"
    breaks = "A prompt hits blocks of other tokens that were made to have its hash."
    seen_by = ("read",)
    question = "A's first block is made to collide with B's. Both go on with the same tokens: what does B find?"
    columns = (PREDICTABLE, FIXED, RANDOM)
    settings = settings(num_blocks=12, block_size=4)
    known_prompt = tuple(range(1, 14))
    """B's prompt: three full blocks and one token more."""
    roles = ("the bug: hash() from a constant", "the fix: SHA-256")
    guide = (
        GuideStop(
            "A's first block is B's with its last two tokens changed, so that the hash is the same.",
            RequestAdded,
        ),
        GuideStop(
            "A has ended. Its three full blocks are cached, each under a hash that continues the first one's.",
            RequestFinished,
        ),
        GuideStop(
            "B's prompt comes, which the attacker knew. Left, the look-up finds all three of A's blocks. Right, none.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, B has answered from the KV of the attacker's tokens.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run the colliding prompt, then the known one."""
        known = self.known_prompt
        for prompt in (colliding_block(known[:4]) + known[4:], known):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, and misreads."""
        return {"tokens that B finds": num_hit_tokens(lab, 1), "requests that misread": num_misread_requests(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request read KV of other tokens."""
        return measured["requests that misread"] > 0

    def claim_holds(self, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Return whether the random start prevents the collision."""
        return self.is_wrong(before) and not self.is_wrong(self.measured(RANDOM.name))

    def answer(self, table: Table) -> str:
        """State what the collision costs, what prevents it, and what does not."""
        wrong, right, random = (table[column.name] for column in self.columns)
        return (
            f"B finds {wrong['tokens that B finds']} tokens of A's; {right['tokens that B finds']} with SHA-256 (pull "
            f"request 15297). The random start of 12621 does not prevent it ({random['tokens that B finds']} tokens): "
            f"the same two blocks collide behind {num_colliding_starts(self.known_prompt[:4], 1000)} of 1,000 random "
            f"starts, so hash(None) was not the weak part. (The last token is a number larger than any vocabulary. "
            f"Within 17 bits the change has to be spread over more tokens, which is not tried here.) SHA-256 needs no "
            f"secret: since pull request 51875 vLLM's start is a constant again, and engines agree on hashes."
        )


SCENARIO = PredictableHash()
