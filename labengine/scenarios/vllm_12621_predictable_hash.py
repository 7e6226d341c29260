"""vLLM pull request 12621: block hashes made with Python's hash() can be predicted, and so collisions be computed.

vLLM's block manager hashed the tuple (is_first_block, previous hash, *tokens); for a first block the previous hash is
None. Since Python 3.12 hash(None) is the same in every process. Integers hash to themselves, and a tuple's hash is
linear in its last item: one equation gives the token that makes two blocks collide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from secrets import randbits

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

    start = randbits(60)


PREDICTABLE = Column(
    "hash(None)",
    Parts(name="vllm, hash(None)", hash_chain=BuiltinHash).overriding(VLLM),
    "Hashes with Python's hash() from a constant: a colliding block can be computed.",
)
FIXED = Column("SHA-256", "vllm", "Hashes with SHA-256: no way is known to make two blocks collide.")
RANDOM = Column(
    "random start",
    Parts(name="vllm, random start", hash_chain=RandomStart).overriding(VLLM),
    "12621: Python's hash() from a random number: a collision cannot be computed without knowing it.",
)

_PRIME_1, _PRIME_2, _PRIME_5 = 11400714785074694791, 14029467366897019727, 2870177450012600261
_MASK = 2**64 - 1


def _state(items: Sequence[int]) -> int:
    """Return the state of CPython's tuple hash after these items, each of which hashes to itself."""
    state = _PRIME_5
    for item in items:
        state = state + item * _PRIME_2 & _MASK
        state = (state << 31 | state >> 33) * _PRIME_1 & _MASK
    return state


def colliding_block(token_ids: Sequence[int]) -> list[int]:
    """Return other tokens that give a first block the same hash from HASH_OF_NONE: all free but the last one.

    The last token makes up for the difference of the states before it. One try in eight gives a number below 2**61 - 1,
    where Python's integers hash to themselves.
    """
    target = _state((True, HASH_OF_NONE, *token_ids[:-1])) + token_ids[-1] * _PRIME_2
    undo = pow(_PRIME_2, -1, 2**64)
    for first in count(1000):
        others = [first] * (len(token_ids) - 1)
        last = (target - _state((True, HASH_OF_NONE, *others))) * undo & _MASK
        if last < 2**61 - 1:
            return [*others, last]
    raise AssertionError("count() ends")


class PredictableHash(Scenario):
    """An attacker knows how a prompt begins, and sends another one whose first block has the same hash."""

    id = "vllm-12621"
    title = "A block hash that can be predicted, and so made to collide"
    url = "https://github.com/vllm-project/vllm/pull/12621"
    claim = (
        "With a predictable hash(None), an attacker who knows a prompt can fill the cache with a prompt that collides "
        "with it, and the request that hits it gets wrong KV."
    )
    kind = "weak hash"
    breaks = "A prompt hits blocks of other tokens that were made to have its hash."
    seen_by = ("read",)
    question = "A's first block is computed to collide with B's. Both go on with the same tokens: what does B find?"
    columns = (PREDICTABLE, FIXED, RANDOM)
    settings = settings(num_blocks=12, block_size=4)
    known_prompt = tuple(range(1, 14))
    """B's prompt: three full blocks and one token more."""
    roles = ("the bug: hash() from a constant", "the fix: SHA-256")
    guide = (
        GuideStop(
            "A's first block was solved for: other tokens than B's, and the same hash.",
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
        for prompt in ([*colliding_block(known[:4]), *known[4:]], known):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, and misreads."""
        return {"tokens that B finds": num_hit_tokens(lab, 1), "requests that misread": num_misread_requests(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request read KV of other tokens."""
        return measured["requests that misread"] > 0

    def answer(self, table: Table) -> str:
        """State what the collision costs, and what prevents it."""
        wrong, right, random = (table[column.name] for column in self.columns)
        return (
            f"B finds {wrong['tokens that B finds']} tokens of A's. The collision takes no search: a tuple's hash is "
            f"linear in its last item, so one equation modulo 2**64 gives the last token, and about 8 tries one that "
            f"fits. (Its number is larger than any vocabulary: with tokens of 17 bits several have to be searched "
            f"for.) A random start prevents this one ({random['tokens that B finds']} tokens), and so does SHA-256 "
            f"({right['tokens that B finds']}), which needs no secret: since pull request 51875 vLLM's start is a "
            f"constant again, and engines agree on hashes."
        )


SCENARIO = PredictableHash()
