"""What vLLM 0.32's scheduler held after every step with state groups, recorded, is what edition vllm holds."""

from __future__ import annotations

from collections import Counter

import pytest

from differential import vllm_golden as golden
from differential.comparison import is_found_out
from differential.vllm_comparison import assert_equal_rows, first_difference, rows_of_simulate
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.state_group import StateGroup
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.state_group import VllmStateGroup
from seeds import one_in
from vllm_state_workloads import mixed_state_workload

NUM_WORKLOADS = 200


@pytest.fixture(scope="module", autouse=True)
def recordings_are_read() -> None:
    """Once, before the first test: parsing takes longer than a test does."""
    golden.recorded("states")


@pytest.mark.parametrize("part", range(5))
def test_every_row_of_the_recorded_workloads_is_equal(part: int) -> None:
    assert_equal_rows(one_in(3, golden.recorded("states"))[part::5], rows_of_simulate)


def test_the_generator_still_makes_the_workloads_that_were_recorded() -> None:
    golden.assert_header("states")
    assert golden.workloads("states") == [*map(mixed_state_workload, range(NUM_WORKLOADS))]


def test_the_workloads_cover_what_they_are_for() -> None:
    """Each in a twentieth of those that are played at every change, and of all."""
    for runs in (golden.recorded("states"), one_in(3, golden.recorded("states"))):
        met = Counter[str]()
        for workload, rows in runs:
            met.update(_met(workload, rows))
        assert min(met.values()) >= len(runs) // 20, met


def _met(workload: golden.Row, rows: list[golden.Row]) -> dict[str, bool]:
    kinds = [group["kind"] for group in workload["groups"]]
    of_states = {index for index, kind in enumerate(kinds) if kind == "state"}
    first_state = min(of_states)
    size = workload["groups"][first_state]["block_size"]
    tables = [state[3][first_state] for row in rows for state in row["requests"].values()]
    return {
        "states alone": set(kinds) == {"state"},
        "with a window": "sliding_window" in kinds,
        "several state groups": len(of_states) > 1,
        "unlike block sizes": len({group["block_size"] for group in workload["groups"]}) > 1,
        "block longer than a step": size > workload["max_num_batched_tokens"],
        "sparse retention": "retention_interval" in workload,
        "drafts": "speculation" in workload,
        "hits inside a block": size > workload["hash_block_size"] and "sliding_window" not in kinds,
        "preemption": any(row["preempted"] for row in rows),
        "gap in a table": any(
            0 in table[1:-1] and any(table[: table.index(0, 1)]) for table in tables if len(table) > 2
        ),
        "state in two tables": any(_is_shared(row, first_state) for row in rows),
        "cached state": any(label.startswith(f"g{first_state}:") for row in rows for label in row["cached"]),
        "step that passes a request over": any(_passes_over(rows[n - 1], row) for n, row in enumerate(rows) if n),
    }


def _is_shared(row: golden.Row, group: int) -> bool:
    held = Counter(block_id for state in row["requests"].values() for block_id in state[3][group] if block_id)
    return any(count > 1 for count in held.values())


def _passes_over(before: golden.Row, row: golden.Row) -> bool:
    running = {int(i) for i, state in before["requests"].items() if state[0] == "running"}
    return bool(row["scheduled"]) and not running <= {request_id for request_id, _ in row["scheduled"]}


class RegistersInTime(VllmStateGroup):
    """A state can be hit in the step that computes it."""

    def num_blocks_to_admit(self, hit: tuple[int, ...], num_computed_tokens: int, num_blocks: int) -> int:  # type: ignore[override]
        return StateGroup.num_blocks_to_admit(self, hit, num_computed_tokens, num_blocks)


class WaitsForOneStep(VllmStateGroup):
    """The owner's next chunk does not register its last boundary again."""

    def register(self, request: Request, num_tokens: int) -> None:
        self.registered_in_step, kept = set(), self.registered_in_step
        super().register(request, num_tokens)
        first = num_tokens // self.block_size - 1
        is_new = request.num_computed_tokens < (first + 1) * self.block_size
        self.registered_in_step = kept | self.registered_in_step if is_new else kept


class RunsOn(TokenBudgetScheduler):
    def clipped(self, request: Request, start: int, num_tokens: int) -> int:
        return num_tokens


class FreesAtOnce(VllmStateGroup):
    """A state is freed when its successor's chunk is computed, not at the allocation after."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens


class ChunksForHits(VllmStateGroup):
    """Chunks end where a hit can, as in labengine."""

    chunk_unit = StateGroup.chunk_unit


class KeepsEveryState(VllmStateGroup):
    caches_every_block = True  # type: ignore[assignment]


MUTANTS = {
    "hits a state of the same step": Parts(state_group=RegistersInTime),
    "waits for one step": Parts(state_group=WaitsForOneStep),
    "chunks end anywhere": Parts(scheduler=RunsOn),
    "frees a state a token early": Parts(state_group=FreesAtOnce),
    "chunks end where hits can": Parts(state_group=ChunksForHits),
    "keeps every state": Parts(state_group=KeepsEveryState),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_core_that_decides_otherwise_is_found_out(mutant: str) -> None:
    parts = MUTANTS[mutant].overriding(VLLM)
    assert is_found_out(
        golden.recorded("states"), lambda workload, rows: first_difference(rows, rows_of_simulate(workload, parts))
    )
