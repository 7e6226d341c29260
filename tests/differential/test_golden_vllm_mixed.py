"""What vLLM 0.32's schedulers held after every step, recorded, is what editions vllm and vllm-async hold.

Answers to one prompt, drafts, priorities, states inside a chunk, aborts, an external tier and steps in flight, each
alone and all mixed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from differential import vllm_golden as golden
from differential.comparison import is_found_out
from differential.departures import departures_of
from differential.vllm_comparison import assert_equal_rows, first_difference
from differential.vllm_encounters import workloads_meeting
from differential.vllm_mixed import parts_of, rows_of_mixed
from differential.vllm_mixed_encounters import ENCOUNTERS, met_by_mixed
from labengine.core.block import Key
from labengine.core.editions import VLLM, VLLM_ASYNC
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.state_group import StateGroup
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.core.vllm.async_scheduler import AsyncTokenBudgetScheduler
from labengine.core.vllm.checkpoints import Checkpoint
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.core.vllm.scheduler import VllmScheduler
from labengine.core.vllm.state_group import VllmStateGroup
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.core.waiting_queue import PriorityQueue, WaitingQueue
from seeds import one_in
from vllm_mixed_workloads import mixed_workload

NUM_WORKLOADS = 200


def played(name: str) -> Sequence[tuple[golden.Row, list[golden.Row]]]:
    """Return the recorded workloads that are played at every change."""
    return one_in(4, golden.recorded(name))


@pytest.fixture(scope="module", autouse=True)
def recordings_are_read() -> None:
    """Once, before the first test: parsing takes longer than a test does."""
    for name in golden.MIXED_NAMES:
        golden.recorded(name)


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("name", golden.MIXED_NAMES)
def test_every_row_of_the_recorded_workloads_is_equal(name: str, part: int) -> None:
    assert_equal_rows(played(name)[part::10], rows_of_mixed)


@pytest.mark.parametrize("name", golden.MIXED_NAMES)
def test_the_generator_still_makes_the_workloads_that_were_recorded(name: str) -> None:
    golden.assert_header(name)
    assert not set[str]().union(*map(departures_of, golden.workloads(name)))
    assert golden.workloads(name) == [mixed_workload(seed, name) for seed in range(NUM_WORKLOADS)]


@pytest.mark.parametrize("name", golden.MIXED_NAMES)
def test_the_workloads_cover_what_they_are_for(name: str) -> None:
    """Each in a fortieth of all, and at least once among those that are played at every change."""
    for runs, share in ((golden.recorded(name), 40), (played(name), len(played(name)))):
        met = workloads_meeting(met_by_mixed(*run) for run in runs)
        assert not {one: met[one] for one in ENCOUNTERS[name] if met[one] < len(runs) // share}


class ForgetsPlaceholders(AsyncTokenBudgetScheduler):
    """Plans as if no draft under way could be accepted."""

    def num_known(self, request: Request) -> int:
        return request.num_tokens + bool(self.ahead_of(request).num_outputs)


class PlansAStepTooMany(AsyncTokenBudgetScheduler):
    def num_plannable(self, request: Request) -> int:
        return VllmScheduler.num_plannable(self, request)


class BooksAllDrafts(AsyncTokenBudgetScheduler):
    """Counts rejected drafts as computed."""

    def book(self, plan: StepPlan, sampled: Sequence[Sequence[int]]) -> tuple[int, ...]:
        longest = max((part.num_drafts for part in plan.sampling), default=0) + 1
        return super().book(plan, [[*tokens, *[0] * longest][:longest] if tokens else [] for tokens in sampled])


class PadsNothing(VllmScheduler):
    def _is_padded(self, request: Request, num_computed: int) -> bool:
        return False


class EndsChunksAnywhere(VllmScheduler):
    def clipped(self, request: Request, start: int, num_tokens: int) -> int:
        return num_tokens


class DropsInEveryGroup(PromptTailGroup):
    """Takes no notice of the groups that are marked."""

    @property
    def drops_last_block(self) -> bool:
        return self._config.drops_hit_blocks


class KeepsNoLookahead(VllmKVCacheManager):
    def num_slots(self, request: Request, num_tokens: int) -> int:
        return num_tokens


class RegistersWhatModulesRead(VllmKVCacheManager):
    def num_cacheable_tokens(self, group: KVCacheGroup, num_tokens: int) -> int:
        if len(self.groups) == 1:
            return num_tokens
        return super().num_cacheable_tokens(group, num_tokens)


class YoungestGivesWay(VllmPriorityQueue):
    def least_urgent(self, running: Sequence[Request]) -> Request:
        return running[-1]


class LastOfEqualOnesGivesWay(VllmPriorityQueue):
    def least_urgent(self, running: Sequence[Request]) -> Request:
        return super().least_urgent(running[::-1])


class ComparesIdsAsNumbers(VllmPriorityQueue):
    def order(self, request: Request) -> tuple[int, int, int | str]:
        return PriorityQueue.order(self, request)


class PutsThePreemptedFirst(VllmPriorityQueue):
    def prepend_request(self, request: Request) -> None:
        WaitingQueue.prepend_request(self, request)


class SortsTheRunning(VllmScheduler):
    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        self.running.sort(key=lambda request: (request.priority, request.arrival))
        return super()._schedule_running(chunk, preempted)


class GoesOnAfterASelfPreemption(VllmScheduler):
    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        batch = super()._schedule_running(chunk, preempted)
        return batch or (super()._schedule_running(chunk, preempted) if preempted else batch)


class CutsWhereHitsEnd(VllmStateGroup):
    def leaves_checkpoint(self, request: Request, start: int, end: int) -> bool:
        return False


class KeepsNoInterval(VllmStateGroup):
    """Takes a block for a state inside every chunk, whatever the retention."""

    def count_chunk(self, request: Request, start: int, end: int) -> Checkpoint | None:
        position = self.last_hit_end(end, self.hit_unit)
        super().count_chunk(request, start, end)
        if self.is_reachable(start, end, position, self.spec.checkpoint_alignment):
            self._counted = Checkpoint(position, self._num_blocks(end) - 2)
        return self._counted


class RegistersByEntry(VllmStateGroup):
    """Finds a state inside a chunk under the key of its table entry."""

    def register_checkpoint(self, request: Request, checkpoint: Checkpoint) -> Key | None:
        end = (checkpoint.entry + 1) * self.block_size
        return super().register_checkpoint(request, checkpoint._replace(num_tokens=end))


class CountsNoCheckpoint(VllmStateGroup):
    def num_own_blocks(self, num_hit: int, num_blocks: int) -> int:
        return StateGroup.num_own_blocks(self, num_hit, num_blocks)


class ForgetsTheAlignment(VllmStateGroup):
    def is_reachable(self, start: int, end: int, position: int, alignment: int | None) -> bool:
        return super().is_reachable(start, end, position, alignment and 1)


SYNC = {
    "cuts where hits end": (Parts(state_group=CutsWhereHitsEnd), "checkpoints"),
    "keeps no interval": (Parts(state_group=KeepsNoInterval), "checkpoints"),
    "registers by the entry": (Parts(state_group=RegistersByEntry), "checkpoints"),
    "counts no checkpoint": (Parts(state_group=CountsNoCheckpoint), "checkpoints"),
    "forgets the alignment": (Parts(state_group=ForgetsTheAlignment), "checkpoints"),
    "pads nothing": (Parts(scheduler=PadsNothing), "speculation"),
    "ends chunks anywhere": (Parts(scheduler=EndsChunksAnywhere), "speculation"),
    "drops in every group": (Parts(full_attention_group=DropsInEveryGroup), "speculation"),
    "keeps no lookahead": (Parts(kv_cache_manager=KeepsNoLookahead), "mixed"),
    "registers what modules read": (Parts(kv_cache_manager=RegistersWhatModulesRead), "speculation"),
    "the youngest gives way": (Parts(waiting_queue=YoungestGivesWay), "priority"),
    "the last of equal ones gives way": (Parts(waiting_queue=LastOfEqualOnesGivesWay), "priority"),
    "compares ids as numbers": (Parts(waiting_queue=ComparesIdsAsNumbers), "priority"),
    "preempted ones first": (Parts(waiting_queue=PutsThePreemptedFirst), "priority"),
    "sorts the running ones": (Parts(scheduler=SortsTheRunning), "priority"),
    "goes on after a self-preemption": (Parts(scheduler=GoesOnAfterASelfPreemption), "priority"),
}
ASYNC = {
    "forgets placeholders": (Parts(scheduler=ForgetsPlaceholders), "speculation"),
    "plans a step too many": (Parts(scheduler=PlansAStepTooMany), "forks"),
    "books all drafts": (Parts(scheduler=BooksAllDrafts), "mixed"),
    "drops windows at once": (Parts(sliding_window_group=SlidingWindowGroup), "mixed"),
}


@pytest.mark.parametrize("mutant", [*SYNC, *ASYNC])
def test_a_core_that_decides_otherwise_is_found_out(mutant: str) -> None:
    is_async = mutant in ASYNC
    parts, name = (ASYNC if is_async else SYNC)[mutant]
    edition = VLLM_ASYNC if is_async else VLLM
    runs = [run for run in golden.recorded(name) if bool(run[0].get("async")) is is_async]

    def difference(workload: golden.Row, rows: list[golden.Row]) -> str | None:
        return first_difference(rows, rows_of_mixed(workload, parts.overriding(parts_of(workload, edition))))

    assert is_found_out(runs, difference)
