"""Requests that wait: for a load, for blocks that they would never hold, for a fence, for their turn in a list."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.scenarios import bug

FIGURES = {
    "sglang-20182": ({"used blocks": 2, "in a request's table": 0}, {"used blocks": 0}),
    "vllm-32255": ({"blocks misread": 2, "requests finished": 2}, {"blocks misread": 0, "requests finished": 2}),
    "vllm-39734": (
        {"requests finished": 0, "free blocks": 16, "steps without progress": 20},
        {"requests finished": 2, "steps without progress": 0},
    ),
    # Step 3: A is preempted, B gets the token for which that was done, and C is ready.
    "vllm-49097": (
        {"preemptions": 1, "requests computed in step 3": 1, "requests skipped in step 3": 1},
        {"preemptions": 1, "requests computed in step 3": 2, "requests skipped in step 3": 0},
    ),
    # 20 + 13 + 17 tokens, and B's first 6 again: it generates one token in step 1, and the other seven from step 5 on.
    "sglang-28282": (
        {"requests preempted in vain": 1, "tokens computed": 56, "step in which B ends": 11},
        {"requests preempted in vain": 0, "tokens computed": 50, "step in which B ends": 8},
    ),
    "vllm-49674": (
        {
            "preempted for the first block": 4,
            "preemptions in all": 7,
            "computed tokens": 116,
            "requests finished": 4,
        },
        {"preempted for the first block": 1, "preemptions in all": 2, "computed tokens": 100, "requests finished": 4},
    ),
    "vllm-57104": (
        {"requests finished": 0, "steps without progress": 20, "loads given up": 0},
        {"requests finished": 2, "steps without progress": 0, "loads given up": 0},
    ),
    "vllm-ascend-16662": (
        {
            "requests aborted": 4,
            "of them ended": 0,
            "blocks that they hold": 8,
            "tokens of the request behind": 0,
        },
        {"of them ended": 4, "blocks that they hold": 0, "tokens of the request behind": 5},
    ),
}


@pytest.mark.parametrize("id", FIGURES)
def test_the_figures(id: str) -> None:
    verdict = bug(id).verdict()
    before, after = FIGURES[id]
    assert dict(verdict.before) == before
    assert after.items() <= verdict.after.items()


def test_the_aborted_transfer_lands_where_the_next_request_computed() -> None:
    with bug("vllm-32255").broken() as lab:
        assert lab.timeline is not None
        [computed] = [event for event in lab.timeline.of_kind(ev.SlotsWritten) if event.start == 0]
        assert [run[0] for run in computed.runs[:2]] == [2, 1]
        for rule in ("read", "named"):
            assert sorted(v.block_ids for v in lab.violations if v.rule == rule) == [(1,), (2,)]


@pytest.mark.parametrize("column", ["stopped", "freed after the load"])
def test_both_ways_out_leave_nothing_behind(column: str) -> None:
    with bug("vllm-32255").played(column) as lab:
        lab.run()
        assert lab.snapshot().num_used_blocks == 0 and lab.check() == []


def test_upstreams_fix_ends_the_request_when_its_load_has_landed() -> None:
    with bug("vllm-32255").played("freed after the load") as lab:
        assert lab.timeline is not None
        events = lab.timeline.events()
        [loaded] = [i for i, event in enumerate(events) if isinstance(event, ev.BlocksLoaded)]
        [aborted] = [i for i, e in enumerate(events) if isinstance(e, ev.RequestFinished) and e.reason == "abort"]
        step = [event.step for event in events[:aborted] if isinstance(event, ev.StepStarted)][-1]
        assert step == 3 and aborted < loaded
        assert not any(isinstance(event, ev.BlockFreed) and event.request_id == 0 for event in events[: aborted - 2])


def test_a_request_larger_than_the_pool_is_refused_or_blocks_the_queue() -> None:
    assert bug("vllm-39734").experiments["larger than the pool"].table().to_dict() == {
        "queued": {"requests taken": 2, "requests finished": 0},
        "refused": {"requests taken": 1, "requests finished": 1},
    }


def test_a_fence_costs_an_empty_step_and_no_preemption() -> None:
    reports = {}
    for column in ("retries at once", "waits"):
        with bug("vllm-49674").lab(column) as lab:
            for first in (1, 101, 201, 301):
                lab.add(token_ids=range(first, first + 8), max_tokens=13)
            reports[column] = [lab.step() for _ in range(7)]
    assert [(len(r.scheduled), len(r.preempted)) for r in reports["retries at once"][5:]] == [(0, 4), (3, 0)]
    assert [(len(r.scheduled), len(r.preempted)) for r in reports["waits"][5:]] == [(0, 0), (3, 1)]


def test_taking_a_landed_load_back_is_enough_as_well() -> None:
    assert bug("vllm-57104").measured("taken back") == {
        "requests finished": 2,
        "steps without progress": 0,
        "loads given up": 1,
    }


def test_counting_without_reserving_can_still_deadlock() -> None:
    assert bug("vllm-57104").experiments["counted, not reserved"].table().to_dict() == {
        "one more counted": {"requests finished": 0, "steps without progress": 20},
        "vllm edition": {"requests finished": 2, "steps without progress": 0},
    }
