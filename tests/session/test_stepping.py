"""Adding and stepping: by steps, by phases, to the end, and after a reset."""

from __future__ import annotations

from labengine.core.merge_policy import MergePolicy
from labengine.core.parts import Parts
from labengine.events import EngineStarted, StepStarted
from labengine.lab import Lab


def test_two_equal_requests_and_one_step(lab: Lab) -> None:
    assert [lab.add(token_ids=range(14), max_tokens=3), lab.add(token_ids=range(14), max_tokens=3)] == [0, 1]
    report = lab.step()
    assert report and report.step == 1
    assert report.scheduled == {0: 14, 1: 14} and set(report.sampled) == {0, 1}
    assert report.peak_used_blocks == 8 and report.preempted == report.finished == ()
    snapshot = lab.snapshot()
    assert snapshot.num_used_blocks == 5
    assert sorted(block.ref_count for block in snapshot.blocks if block.ref_count) == [1, 1, 2, 2, 2]
    assert lab.check() == []


def test_the_other_edition_keeps_eight() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, edition="nano-vllm") as lab:
        for _ in range(2):
            lab.add(token_ids=range(14), max_tokens=3)
        lab.step()
        assert lab.snapshot().num_used_blocks == 8 and len(lab.snapshot().lost_blocks) == 3


def test_parts_replace_a_field_of_the_edition() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(name="no merge", merge_policy=MergePolicy)) as lab:
        for _ in range(2):
            lab.add(token_ids=range(14), max_tokens=3)
        lab.step()
        assert lab.snapshot().num_used_blocks == 8
        assert lab.status()["edition"] == "no merge"


def test_a_step_without_work_is_falsy_and_changes_nothing(lab: Lab) -> None:
    before = lab.snapshot()
    assert not lab.step()
    assert lab.snapshot() == before


def test_phases_are_the_same_step(lab: Lab) -> None:
    lab.add(token_ids=range(6), max_tokens=2)
    assert list(lab.phases()) == ["schedule", "forward", "sample", "update"]
    assert lab.phase == "update" and lab.snapshot().step == 1
    assert list(lab.phases())[-1] == "update"
    assert list(lab.phases()) == [] and lab.next_phase() is None


def test_a_step_left_open_is_finished_by_the_next_command(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    for phase in lab.phases():
        if phase == "forward":
            break
    assert lab.phase == "forward" and lab.snapshot().requests[0].num_computed_tokens == 0
    assert lab.add(token_ids=range(3), max_tokens=3) == 1
    state = lab.snapshot()
    assert state.step == 1 and state.requests[0].num_computed_tokens == 14
    assert state.requests[1].status == "waiting"
    assert lab.check() == []


def test_step_finishes_an_open_step_and_reports_it(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    assert lab.next_phase() == "schedule"
    report = lab.step()
    assert report.step == 1 and report.scheduled == {0: 14}


def test_reset_takes_an_open_step_back_before_it_starts_anew(lab: Lab) -> None:
    lab.add(token_ids=range(14), max_tokens=3)
    lab.next_phase()
    lab.reset()
    assert lab.timeline is not None
    assert [type(event) for event in lab.timeline.events()] == [EngineStarted]
    assert lab.timeline.state().snapshot() == lab.snapshot()


def test_run_until_nothing_is_left_or_a_condition_holds(lab: Lab) -> None:
    lab.add(token_ids=range(6), max_tokens=5)
    lab.run(until=lambda lab: lab.snapshot().step == 2)
    assert lab.snapshot().step == 2 and not lab.is_running
    seen: list[bool] = []
    lab.hooks.subscribe(lambda event: seen.append(lab.is_running), StepStarted)
    lab.run()
    assert seen == [True] * 3 and lab.output(0).finish_reason == "length"


def test_reset_empties_everything_but_the_listeners(lab: Lab) -> None:
    heard: list[object] = []
    lab.hooks.subscribe(heard.append, StepStarted)
    empty = lab.snapshot()
    lab.generate([[1, 2, 3, 4, 5]], max_tokens=3)
    assert heard and lab.snapshot() != empty
    heard.clear()
    lab.reset()
    assert lab.snapshot() == empty
    assert lab.stats().num_requests == lab.stats().num_steps == lab.stats().peak_used_blocks == 0
    assert lab.add(token_ids=[1, 2, 3], max_tokens=3) == 0
    lab.step()
    assert len(heard) == 1
