"""vLLM pull request 12621: blocks that collide under Python's hash(), mostly whatever the chain begins with.

V0's block manager hashed the tuple (is_first_block, previous hash, *tokens, extra_hash). Since Python 3.12 hash(None),
the previous hash of a first block, is the same in every process; the pull request begins with a random number instead.
But integers hash to themselves, and a tuple's hash is a few additions, rotations and multiplications: changes of a few
tokens can cancel, often without knowing what stands before them. (V1's key held the tokens beside the hash: there two
first blocks with one hash were two keys.)
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from labengine.core.editions import VLLM
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from labengine.events import PrefixHit, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings

HASH_OF_NONE = 0xFCA86420
"""hash(None) in CPython 3.12 and later, on every machine. The extra_hash of a request without adapter is None too."""


def block_hash(is_first: bool, before: int, token_ids: Sequence[int]) -> int:
    """Return V0's hash of a block: Python's hash of a tuple, 64 bits."""
    return hash((is_first, before, *token_ids, HASH_OF_NONE))


class BuiltinHash(HashChain):
    """The hash before the pull request."""

    start = HASH_OF_NONE

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return Python's hash of the block and the hash before it."""
        before = int.from_bytes(parent_hash, "little", signed=True) if parent_hash else self.start
        return block_hash(not parent_hash, before, token_ids).to_bytes(8, "little", signed=True)


class RandomStart(BuiltinHash):
    """The pull request: the chain begins with a number that an attacker does not know."""

    start = Random("a secret").getrandbits(60)


PREDICTABLE = Column(
    "hash(None)",
    Parts(name="vllm, hash(None)", hash_chain=BuiltinHash).overriding(VLLM),
    "Hashes with Python's hash() from a constant, as V0 up to 0.7.1: a colliding block can be computed.",
)
FIXED = Column(
    "SHA-256", "vllm", "Hashes with SHA-256, V1's default since 0.10.2: no way is known to make two blocks collide."
)
RANDOM = Column(
    "random start",
    Parts(name="vllm, random start", hash_chain=RandomStart).overriding(VLLM),
    "12621, V0 since 0.7.2: Python's hash() from a random number. The same two blocks collide behind most numbers.",
)

VOCABULARY = 128_000
DIFFERENCES = (85_087, 75_418, 78_482, 10_072, 59_306)
"""Added to five tokens in a row, they leave a tuple's hash as it is, behind about three of four states before them.

A token is added to the state times a constant; the state is rotated and multiplied. A difference passes a rotation
unchanged unless a carry crosses an end of the rotated word. Five differences below the vocabulary's size were searched
that cancel with likely carries: all pairs from either end, which meet in the middle.
"""


def colliding_block(token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return the block with other last five tokens, and the same hash behind most parents."""
    first = len(token_ids) - len(DIFFERENCES)
    changed = (token + more for token, more in zip(token_ids[first:], DIFFERENCES, strict=True))
    return (*token_ids[:first], *changed)


def num_colliding_starts(token_ids: tuple[int, ...], num_starts: int) -> int:
    """Return behind how many of num_starts random numbers the block and its colliding one have the same hash."""
    rng, other = Random(12621), colliding_block(token_ids)
    starts = [rng.getrandbits(60) for _ in range(num_starts)]
    return sum(block_hash(True, start, token_ids) == block_hash(True, start, other) for start in starts)


class PredictableHash(Scenario):
    """An attacker knows how a prompt begins, and sends another one whose first block has the same hash."""

    id = "vllm-12621"
    title = "Block hashes made with hash() can be made to collide"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="12621",
        title="[Core] Improve hash collision avoidance in prefix caching",
        state="merged",
        as_of="2026-09-11",
        seen_in="V0 up to 0.7.1, whose first block follows hash(None)",
        mended_in="0.7.2, which begins with hash('None') (12621). V0 used hash() until 0.11.0 came without V0",
        needs=("V0", "prefix caching", "Python 3.12 or later, where hash(None) is a constant"),
    )
    claim = (
        "With a predictable hash(None), an attacker who knows a prompt can compute one that collides with it, and fill "
        "the cache with wrong KV. A chain that begins with a random value makes that much more difficult."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "A colliding prompt can be computed, within the token ids of a vocabulary of 128,000. That a random start "
            "makes it much more difficult does not follow: Python's hash() of 0.7.2's tuple is the same for one pair "
            "of blocks behind about three of four random starts, found here without knowing any."
        ),
        passages=(
            CodePassage(
                version="vllm 0.7.1",
                file="vllm/core/block/prefix_caching_block.py",
                line=932,
                text="return hash((is_first_block, prev_block_hash, *cur_block_token_ids,",
                says="V0's key is Python's hash of the tuple, and nothing else; the first block follows None.",
            ),
            CodePassage(
                version="vllm 0.7.2",
                file="vllm/core/block/prefix_caching_block.py",
                line=754,
                text="_none_hash: int = hash('None')",
                says="The start is the hash of a string, which is another one in each process.",
            ),
            CodePassage(
                version="vllm 0.7.2",
                file="vllm/v1/core/kv_cache_utils.py",
                line=26,
                text="token_ids: Tuple[int, ...]",
                says="V1's key holds the tokens beside the hash.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=143,
                text="return os.urandom(32).hex()",
                says="The start is random where the hash is not cryptographic (xxhash), and constant for SHA-256.",
            ),
        ),
    )
    kind = "weak hash"
    breaks = "A prompt hits blocks of other tokens that were made to have its hash."
    wrong_figure = "requests that misread"
    seen_by = ("read",)
    question = "A's first block is made to collide with B's. Both go on with the same tokens: what does B find?"
    columns = (PREDICTABLE, FIXED, RANDOM)
    block_size = 8
    settings = settings(num_blocks=12, block_size=block_size)
    known_prompt = tuple(range(1, 26))
    """B's prompt: three full blocks and one token more."""
    roles = ("the bug: hash() from a constant", "another hash: SHA-256")
    guide = (
        GuideStop(
            "A's first block is B's with its last five tokens changed, so that the hash is the same.",
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
        for prompt in (colliding_block(known[: self.block_size]) + known[self.block_size :], known):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, and misreads."""
        return {"tokens that B finds": num_hit_tokens(lab, 1), "requests that misread": num_misread_requests(lab)}

    def answer(self, table: Table) -> str:
        """State what the collision costs, what prevents it, and what does not."""
        wrong, right, random = (table[column.name] for column in self.columns)
        starts = num_colliding_starts(self.known_prompt[: self.block_size], 1000)
        return (
            f"B finds {wrong['tokens that B finds']} tokens of A's; {right['tokens that B finds']} with SHA-256 (pull "
            f"request 15297). With the random start of 12621 it finds {random['tokens that B finds']} here: the same "
            f"two blocks collide behind {starts} of 1,000 random starts, and all their tokens are below "
            f"{VOCABULARY:,}. SHA-256 needs no secret: since 0.29.0 (pull request 51875) vLLM's chain begins with a "
            f"constant, and engines agree on hashes; with xxhash the start is random in each process."
        )


SCENARIO = PredictableHash()
