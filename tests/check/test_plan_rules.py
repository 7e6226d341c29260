"""Where a step may write: slots by the rule, and no blocks that another request reads."""

from __future__ import annotations

from typing import Any

import pytest

from check.watched import FULL, Watched, watched
from labengine.check.judge import Judge
from labengine.check.plan_rules import follows_slot_rule, judge_plan
from labengine.check.slot_memory import SavedBlocks
from labengine.config import GroupSpec, SamplingParams
from labengine.core.connector import BlockTransfer
from labengine.core.step_plan import ScheduledRequest, SlotRun, StepPlan
from labengine.record.violation import Violation


@pytest.mark.parametrize(
    ("runs", "follows"),
    [
        (((7, 2, 2), (5, 0, 4), (9, 0, 1)), True),
        (((7, 2, 1), (7, 3, 1), (5, 0, 4), (9, 0, 1)), True),
        (((7, 2, 2), (5, 0, 4)), False),
        (((7, 2, 2), (5, 0, 4), (9, 0, 2)), False),
        (((7, 1, 2), (5, 0, 4), (9, 0, 1)), False),
        (((7, 2, 2), (9, 0, 4), (5, 0, 1)), False),
        (((7, 2, 2), (5, 0, 4), (9, 1, 1)), False),
        ((), False),
    ],
)
def test_the_slot_rule(runs: tuple[SlotRun, ...], follows: bool) -> None:
    """Positions 2 to 8 of a table 7, 5, 9 with blocks of 4."""
    assert follows_slot_rule(runs, (7, 5, 9), 2, 9, 4) is follows


def test_a_table_that_is_too_short_follows_no_rule() -> None:
    assert not follows_slot_rule(((7, 2, 2), (5, 0, 1)), (7,), 2, 5, 4)


@pytest.fixture
def setup() -> Watched:
    """Requests 0 and 1 share the full blocks 0 and 1; each has one more block."""
    setup = watched(12, FULL)
    for _ in range(2):
        setup.add(*range(10), max_tokens=9)
        setup.steps(1)
    tables = [setup.engine.requests[i].block_tables[0] for i in (0, 1)]
    assert tables == [[0, 1, 2], [0, 1, 3]]
    return setup


def judged(setup: Watched, plan: StepPlan, *, early: bool = False) -> list[Violation]:
    state = Judge(setup.engine, SavedBlocks())._state
    return list(judge_plan(state, plan, registers_early=early))


def step(setup: Watched, start: int, end: int, *runs: SlotRun, **changes: Any) -> StepPlan:
    """Request 0 computes positions [start, end) into these runs."""
    request = setup.engine.requests[0]
    part = ScheduledRequest(
        request_id=0,
        token_ids=tuple(request.token_ids[start:end]),
        start=start,
        block_tables=changes.get("tables", (tuple(request.block_tables[0]),)),
        slot_runs=(runs,),
        is_prefill=False,
        samples=False,
        sampling=SamplingParams(),
        seed=0,
    )
    return StepPlan((part,), loads=changes.get("loads", ()))


def test_a_write_to_ones_own_unfinished_block_is_well(setup: Watched) -> None:
    assert judged(setup, step(setup, 11, 12, (2, 3, 1))) == []


def test_a_write_to_a_wrong_slot_names_position_and_slots(setup: Watched) -> None:
    (violation,) = judged(setup, step(setup, 10, 12, (2, 2, 1), (2, 2, 1)))
    assert (violation.rule, violation.request_ids, violation.block_ids) == ("slot", (0,), (2,))
    assert "position 11 goes to slot 10, not to 11" in violation.message


def test_a_write_to_a_shared_block_names_those_who_count_on_it(setup: Watched) -> None:
    found = judged(setup, step(setup, 4, 5, (1, 0, 1)))
    assert [(v.rule, v.request_ids, v.block_ids) for v in found] == [("write", (0, 1), (1,)), ("write", (0, 1), (1,))]
    assert [v.message.split(", which ")[1] for v in found] == ["other requests use", "is full and cached"]


def test_a_write_to_a_free_block_is_found(setup: Watched) -> None:
    free = setup.engine.snapshot().free_queue[0]
    tables = ((0, 1, free),)
    (violation,) = judged(setup, step(setup, 11, 12, (free, 3, 1), tables=tables))
    assert violation.rule == "write" and violation.message.endswith("which is free")


def test_a_load_writes_too(setup: Watched) -> None:
    load = BlockTransfer(1, 0, 0, 0, b"h")
    found = judged(setup, step(setup, 11, 12, (2, 3, 1), loads=(load,)))
    assert {(v.rule, v.request_ids, v.block_ids) for v in found} == {("write", (0, 1), (0,))}


def test_an_edition_that_registers_early_writes_what_it_has_promised(setup: Watched) -> None:
    """Blocks 0 and 1 are named by the map and shared; only the tokens that they are cached for may be written."""
    assert judged(setup, step(setup, 4, 8, (1, 0, 4)), early=True) == []
    setup.engine.requests[1].token_ids[0] = 99
    (violation,) = judged(setup, step(setup, 4, 8, (1, 0, 4)), early=True)
    assert violation.message.endswith("which other requests use")


@pytest.mark.parametrize("edition", ["vllm", "nano-vllm-2025-07"])
def test_equal_prompts_share_in_the_step_that_computes_them(edition: str) -> None:
    setup = watched(12, FULL, edition)
    for _ in range(2):
        setup.add(*range(10), max_tokens=4)
    setup.steps(1)
    snapshot = setup.engine.snapshot()
    assert 2 in {block.ref_count for block in snapshot.blocks}
    setup.run()
    assert setup.watch.violations == []


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243"])
def test_the_last_block_of_the_table_is_the_right_one_for_blocks_of_one_too(edition: str) -> None:
    setup = watched(32, (GroupSpec(1),), edition)
    for _ in range(2):
        setup.add(1, 2, 3, max_tokens=6)
    setup.run()
    assert setup.watch.violations == []
