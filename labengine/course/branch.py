"""The branch of the notebook "The hunt": an engine with four changed methods, and a day's requests.

Not all four methods are right. The notebook imports the branch by name, and reads this file only at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.block import Block
from labengine.core.editions import NANO_VLLM_243
from labengine.core.kv_cache_manager import Moment
from labengine.core.merge_policy import LateMergeComparingPrefixes
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import RequestAdded, StepStarted, TokenSampled
from labengine.lab import Lab


class BranchScheduler(PrefillFirstScheduler):
    """The branch's scheduler: short prompts overtake."""

    def next_waiting(self) -> Request:
        """Return the waiting request with the fewest tokens: it delays the others least."""
        return min(self.waiting, key=lambda request: request.num_tokens)


class BranchManager(NanoKVCacheManager):
    """The branch's manager: it registers all blocks of a prompt together."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return all of the request's tokens after compute: its blocks were allocated together."""
        return request.num_tokens if moment == "computed" else 0


class BranchPool(NanoBlockPool):
    """The branch's pool: it reuses blocks first that no look-up can find."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the freed blocks without content: no look-up needs them."""
        return [block_id for block_id in block_ids if not self.blocks[block_id].keys]


class BranchMerge(LateMergeComparingPrefixes):
    """The branch's late merge: into the most shared block."""

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        """Return the equal live block with the most references: the others become free sooner."""
        others = [other for other in mapped if other is not block and self.is_alive(other)]
        equal = [other for other in others if self.is_equal(other, request, link)]
        return max(equal, key=lambda other: other.ref_count, default=None)


FAST_PREFILL = Parts(
    name="fast-prefill",
    scheduler=BranchScheduler,
    kv_cache_manager=BranchManager,
    block_pool=BranchPool,
    merge_policy=BranchMerge,
).overriding(NANO_VLLM_243)
"""The branch, made from nano-vllm+243."""

TEXTS = (
    "Books are lent for four weeks, records for two, and maps only to readers who have brought one back before",
    "Peel the apples, cut them small, add sugar and a little lemon, and leave them on the stove until nobody asks",
    "The ferry leaves at seven, at noon and at six, but not in fog, and never without the doctor's dog",
    "Whoever finds the key keeps it for a year, waters the plants on Sundays, and tells nobody what is in the shed",
)
QUESTIONS = (
    "What does this say about people who are always late for everything ?",
    "Say it shorter , please .",
    "Is it true ?",
)


def send_day(lab: Lab) -> None:
    """Ask three questions about each of four texts, the longest question first: one request a step; then run."""
    for text in TEXTS:
        for question in QUESTIONS:
            lab.add(f"{text}. {question}", max_tokens=3, ignore_eos=True)
            lab.step()
    lab.run()


def waits(lab: Lab) -> list[int]:
    """Return for each request the steps from its arrival to its first token."""
    assert lab.timeline is not None
    step, arrived, waited = 0, dict[int, int](), dict[int, int]()
    for event in lab.timeline.events():
        match event:
            case StepStarted():
                step = event.step
            case RequestAdded():
                arrived[event.request_id] = step
            case TokenSampled():
                waited.setdefault(event.request_id, step - arrived[event.request_id])
    return [waited[request_id] for request_id in sorted(waited)]
