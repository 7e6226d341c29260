"""What vLLM 0.32 held after every op and step, recorded, is what labengine's edition vllm holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest

from check.mutations import GroupAfterGroup
from differential import vllm_golden as golden
from differential.comparison import is_found_out
from differential.departures import departures_of
from differential.vllm_comparison import assert_equal_rows, first_difference, rows_of_replay, rows_of_simulate
from differential.vllm_encounters import (
    HYBRID_OP_ENCOUNTERS,
    OP_ENCOUNTERS,
    STEP_ENCOUNTERS,
    doubled_if_interleaved,
    met_by_ops,
    met_by_steps,
    workloads_meeting,
)
from labengine.core.block import Block
from labengine.core.editions import VLLM
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import KeepDuplicates, LateMergeComparingPrefixes
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.block_pool import VllmBlockPool
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from seeds import one_in
from vllm_scheduler_workloads import scheduler_workload, unread_workload
from vllm_workloads import KINDS, op_workload

RUNS: dict[str, Callable[[golden.Row, str | Parts], list[golden.Row]]] = {
    "ops-full": rows_of_replay,
    "ops-hybrid": rows_of_replay,
    "scheduler": rows_of_simulate,
    "unread": rows_of_simulate,
}
STEP_WORKLOADS = {"scheduler": scheduler_workload, "unread": unread_workload}


def played(name: str) -> Sequence[tuple[golden.Row, list[golden.Row]]]:
    """Return the recorded workloads that are played at every change; in proportion they meet as much as all."""
    return one_in(3, golden.recorded(name))


@pytest.fixture(scope="module", autouse=True)
def recordings_are_read() -> None:
    """Once, before the first test: parsing takes longer than a test does."""
    for name in golden.NAMES:
        golden.recorded(name)


@pytest.mark.parametrize("name", golden.NAMES)
def test_header_names_version_and_command(name: str) -> None:
    golden.assert_header(name)
    assert len(golden.recorded(name)) == 200
    assert not set[str]().union(*map(departures_of, golden.workloads(name)))


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("name", golden.NAMES)
def test_every_row_of_the_recorded_workloads_is_equal(name: str, part: int) -> None:
    assert_equal_rows(played(name)[part::10], lambda workload: RUNS[name](workload, "vllm"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_generator_still_makes_the_ops_that_were_recorded(kind: str) -> None:
    assert golden.workloads(f"ops-{kind}") == [op_workload(seed, kind) for seed in range(200)]


@pytest.mark.parametrize("name", STEP_WORKLOADS)
def test_the_generator_still_makes_the_scheduler_workloads_that_were_recorded(name: str) -> None:
    """Those that preempt, in the order of their seeds."""
    made = map(STEP_WORKLOADS[name], range(400))
    for workload, rows in golden.recorded(name):
        assert workload in made
        assert any(row["preempted"] for row in rows)


@pytest.mark.parametrize(("name", "wanted"), [("ops-full", OP_ENCOUNTERS), ("ops-hybrid", HYBRID_OP_ENCOUNTERS)])
def test_the_ops_cover_what_they_are_for(name: str, wanted: tuple[str, ...]) -> None:
    """Each encounter in a tenth of them, and the two-phase window, where one group has one, in two fifths."""
    for runs in (golden.recorded(name), played(name)):
        met = workloads_meeting(met_by_ops(*run) for run in runs)
        assert not {encounter: met[encounter] for encounter in wanted if met[encounter] < len(runs) // 10}
        assert met["two-phase window"] >= (len(runs) * 2 // 5 if name == "ops-hybrid" else 0)


@pytest.mark.parametrize("name", STEP_WORKLOADS)
def test_the_scheduler_workloads_cover_what_they_are_for(name: str) -> None:
    """Each encounter in a twentieth of them, and a preemption in all."""
    for runs in (golden.recorded(name), played(name)):
        met = workloads_meeting(met_by_steps(*run) for run in runs)
        assert not {encounter: met[encounter] for encounter in STEP_ENCOUNTERS if met[encounter] < len(runs) // 20}
        assert met["preemption"] == len(runs)


class OneGroupAfterTheOther(GroupAfterGroup, VllmKVCacheManager):
    """vLLM before pull request 44409."""


def test_the_two_phase_window_is_where_the_old_order_puts_a_block_into_two_tables() -> None:
    """Decided from rows alone, and done: the same blocks at the same op; elsewhere the order makes no difference."""
    parts = Parts(kv_cache_manager=OneGroupAfterTheOther).overriding(VLLM)
    for workload, rows in played("ops-hybrid"):
        number, doubled = _first_doubled(workload, rows)
        ours = rows_of_replay(workload | {"ops": workload["ops"][: number + 1]}, parts)
        assert first_difference(rows[:number], ours[:number]) is None
        if doubled:
            held = [i for table in ours[number]["state"]["tables"][ours[number]["req"]] for i in table if i]
            assert {i for i in held if held.count(i) > 1} == doubled
            assert {ours[number]["state"]["ref_cnt"][i] for i in doubled} == {2}


def _first_doubled(workload: golden.Row, rows: list[golden.Row]) -> tuple[int, set[int]]:
    for number in range(1, len(rows)):
        if rows[number].get("external") and rows[number]["ok"]:
            doubled = doubled_if_interleaved(workload, rows[number - 1]["state"], rows[number])
            if doubled:
                return number, doubled
    return len(rows), set()


class FreesToTheTail(VllmBlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return []


class ServesTheNewest(KeepDuplicates):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return (block_id, *(i for i in mapped if i != block_id))


class MergesAtAllocation(LateMergeComparingPrefixes):
    """Late merge where vLLM keeps duplicates."""

    def is_alive(self, other: Block) -> bool:
        return True


class FreesAWindowLate(SlidingWindowGroup):
    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - self.window)


class CountsFreeHitsAsNothing(VllmKVCacheManager):
    def can_admit(self, request: Request, hit: Hit, num_external: int = 0, num_spare: int = 0) -> bool:
        return True


class AdmitsAfterPreempting(TokenBudgetScheduler):
    def allocate_or_preempt(
        self, request: Request, num_tokens: int, batch: list[ScheduledRequest], preempted: list[int]
    ) -> bool:
        return super().allocate_or_preempt(request, num_tokens, batch, [])


class HoldsUpTheLonely(TokenBudgetScheduler):
    def longest_chunk(self) -> int:
        return self.config.long_prefill_token_threshold or self.config.max_num_batched_tokens


class ReadsForAll(VllmKVCacheManager):
    def find_prefix(self, request: Request) -> Hit:
        self.extend_hashes(request, request.num_tokens)
        return self.longest_hit(request, request.num_tokens - 1)


MUTANTS = {
    "reads the cache for all": (Parts(kv_cache_manager=ReadsForAll), ["unread"]),
    "one group after the other": (Parts(kv_cache_manager=OneGroupAfterTheOther), ["ops-hybrid"]),
    "unhashed blocks to the tail": (Parts(block_pool=FreesToTheTail), golden.NAMES),
    "serves the newest duplicate": (Parts(merge_policy=ServesTheNewest), golden.NAMES),
    "merges duplicates": (Parts(merge_policy=MergesAtAllocation), golden.NAMES),
    "registers after compute": (Parts(kv_cache_manager=KVCacheManager), golden.NAMES),
    "forgets prompt tails": (Parts(full_attention_group=FullAttentionGroup), ["ops-hybrid", "scheduler"]),
    "frees a window a token late": (Parts(sliding_window_group=FreesAWindowLate), ["ops-hybrid", "scheduler"]),
    "admits chunk by chunk": (Parts(kv_cache_manager=CountsFreeHitsAsNothing), ["scheduler"]),
    "admits in a step that preempted": (Parts(scheduler=AdmitsAfterPreempting), ["scheduler"]),
    "cuts the chunks of one alone": (Parts(scheduler=HoldsUpTheLonely), ["scheduler"]),
}


@pytest.mark.parametrize(("mutant", "name"), [(mutant, name) for mutant in MUTANTS for name in MUTANTS[mutant][1]])
def test_a_core_that_decides_otherwise_is_found_out(mutant: str, name: str) -> None:
    parts = MUTANTS[mutant][0].overriding(VLLM)
    assert is_found_out(
        golden.recorded(name), lambda workload, rows: first_difference(rows, RUNS[name](workload, parts))
    )


@pytest.mark.parametrize("name", golden.NAMES)
def test_any_change_of_a_row_is_a_difference(name: str) -> None:
    """The comparison itself: every number, word and order of every recorded row counts."""
    for _, rows in islice(golden.recorded(name), 3):
        for number, row in enumerate(rows):
            assert all(first_difference([row], [other]) for other in _changes(row)), (number, row)
        assert first_difference(rows, rows[:-1]) == f"vLLM has {len(rows)} rows, labengine {len(rows) - 1}"
        assert first_difference(rows, [*rows]) is None


def _changes(value: Any) -> list[Any]:
    """The value with one thing in it changed, in every way there is, and with its parts in another order."""
    changed: list[Any]
    match value:
        case dict():
            changed = [{**value, key: other} for key, item in value.items() for other in _changes(item)]
            return [*changed, *({k: v for k, v in value.items() if k != key} for key in value), {**value, "more": 0}]
        case list():
            changed = [[*value[:i], other, *value[i + 1 :]] for i, item in enumerate(value) for other in _changes(item)]
            return [*changed, [*value, 0]] if value == value[::-1] else [*changed, value[::-1]]
        case _:
            return [[value]]
