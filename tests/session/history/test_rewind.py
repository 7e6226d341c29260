"""Rewind: the same engine repeats its steps up to an earlier one, and forward again from there.

What a fork has in common with it is here too: the same inputs lead to the same events and states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ctrl_c import press_ctrl_c
from driving import ALL_EDITIONS, TOKEN_BUDGET_EDITIONS
from labengine import compare
from labengine.config import ConfigError
from labengine.engine.external import HostStore
from labengine.events import EngineStarted, StepStarted
from labengine.lab import Lab
from labengine.session.stepper import LabClosedError
from sessions import Session, broken, events_until, hybrid_workloads, lab_for, state, story
from workloads import Workload, random_workload

NUM_ACTS = 40
SEEDS = range(20, 25)


def worked(workload: Workload, edition: str, seed: int, **settings: Any) -> Lab:
    """Return a lab after some operations, at the end of a step."""
    lab = lab_for(workload, edition, **settings)
    Session(lab, workload, seed).work(NUM_ACTS)
    lab.step()
    return lab


def assert_goes_back_and_forth(workload: Workload, edition: str, seed: int, **settings: Any) -> None:
    """Fork at a step, and go to several steps in any order; each time the state is the same as before."""
    rng = Random(seed)
    with worked(workload, edition, seed, **settings) as lab:
        events, newest, end, inputs = story(lab), lab.snapshot().step, state(lab), lab.inputs
        middle = rng.randint(0, newest)
        with lab.fork(middle) as fork, lab.fork() as now:
            assert story(fork) == events_until(events, middle) and fork.snapshot().step == middle
            assert story(now) == story(lab) == events and state(now) == state(lab) == end
        for step in [rng.randint(0, newest) for _ in range(4)] + [newest]:
            lab.rewind(step)
            assert story(lab) == events_until(events, step) and lab.snapshot().step == step
            assert lab.inputs == tuple(kept for kept in inputs if kept.num_steps <= step)
        assert state(lab) == end
        lab.run()
        with lab.fork() as fork:
            assert story(fork) == story(lab) and state(fork) == state(lab)


@pytest.mark.parametrize("edition", [*ALL_EDITIONS, "nano-vllm-2025-07"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_sessions(edition: str, seed: int) -> None:
    assert_goes_back_and_forth(random_workload(seed), edition, seed)


@pytest.mark.parametrize("number", range(12))
def test_several_groups(number: int) -> None:
    assert_goes_back_and_forth(hybrid_workloads(12)[number], TOKEN_BUDGET_EDITIONS[number % 2], number)


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
@pytest.mark.parametrize("seed", range(4))
def test_a_tier_in_host_memory_is_emptied(edition: str, seed: int) -> None:
    assert_goes_back_and_forth(random_workload(seed), edition, seed, external="host")


@pytest.mark.parametrize("seed", range(4))
def test_steps_scheduled_ahead(seed: int) -> None:
    assert_goes_back_and_forth(random_workload(seed), "labengine", seed, overlap=True, check=False)


def test_the_sessions_cover_what_they_are_for() -> None:
    """Otherwise the tests above would show little."""
    met: Counter[str] = Counter()
    for seed in SEEDS:
        with worked(random_workload(seed), "labengine", seed) as lab:
            met.update(type(kept).__name__ for kept in lab.inputs)
            met.update(type(event).__name__ for event in story(lab))
            met["distrusted"] += sum(getattr(event, "reason", "") == "distrusted" for event in story(lab))
    for name in ("AbortInput", "ResetInput", "BrokenStep", "RequestPreempted", "BlockMerged", "distrusted"):
        assert met[name], met


# -- what a rewind is --------------------------------------------------------------------------------------------------


@pytest.fixture
def lab() -> Iterator[Lab]:
    """One request, and a second one after step 2; six steps in all."""
    with Lab("simulated", num_blocks=16, block_size=4) as lab:
        lab.add(token_ids=range(6), max_tokens=6)
        lab.step(2)
        lab.add(token_ids=range(6), max_tokens=4)
        lab.run()
        assert lab.snapshot().step == 6
        yield lab


def test_a_tier_that_reset_has_kept_is_reported_at_the_callers_line() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, external="host") as lab:
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
        lab.reset()
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
        with pytest.warns(UserWarning, match="kept the host tier's blocks") as warned:
            lab.rewind(0)
        assert [w.filename for w in warned] == [__file__]


def test_it_is_where_the_next_step_was_about_to_begin(lab: Lab) -> None:
    lab.rewind(2)
    assert len(lab.snapshot().requests) == 2, "what was added before step 3 is there"
    lab.rewind(1)
    assert lab.snapshot().step == 1 and len(lab.snapshot().requests) == 1
    lab.rewind(0)
    assert lab.snapshot().step == 0 and lab.snapshot().requests[0].status == "waiting"


def test_listeners_hear_it_all_again_and_the_recording_restarts(lab: Lab) -> None:
    heard: list[object] = []
    lab.hooks.subscribe(lambda event: heard.append(type(event)), EngineStarted, StepStarted)
    assert lab.timeline is not None
    generation = lab.timeline.generation
    lab.rewind(3)
    assert heard == [EngineStarted, *[StepStarted] * 3] and lab.timeline.generation == generation + 1
    assert lab.stats().num_steps == 3 and lab.stats().num_requests == 2


def test_forward_goes_on_from_here(lab: Lab) -> None:
    end = lab.snapshot()
    lab.rewind(1)
    heard: list[object] = []
    lab.hooks.subscribe(lambda event: heard.append(event.step), StepStarted)
    lab.rewind(4)
    assert heard == [2, 3, 4]
    lab.rewind(6)
    assert lab.snapshot() == end and heard == [2, 3, 4, 5, 6]


def test_something_new_makes_what_followed_unknown(lab: Lab) -> None:
    lab.rewind(1)
    assert lab.add(token_ids=range(50, 53), max_tokens=2) == 1
    with pytest.raises(ConfigError, match=r"between 0 and 1 \(the lab has taken 1 step\), got 2"):
        lab.rewind(2)
    lab.run()
    newest, end = lab.snapshot().step, state(lab)
    lab.rewind(0)
    lab.rewind(newest)
    assert state(lab) == end and len(lab.inputs) == 2


def test_other_acts_are_something_new_too(lab: Lab) -> None:
    for act, step in ((lambda: lab.abort(0), 1), (lab.reset_prefix_cache, 0)):
        lab.rewind(step)
        act()
        with pytest.raises(ConfigError):
            lab.rewind(step + 1)


def test_what_changes_nothing_is_nothing_new(lab: Lab) -> None:
    lab.rewind(5)
    with lab.fork() as fork:
        finished = [i for i, r in fork.snapshot().requests.items() if r.status == "finished"]
    assert not lab.reset_prefix_cache() or finished
    assert [lab.abort(i) for i in finished] == [False] * len(finished)
    lab.rewind(6)


def test_steps_by_hand_stay_on_the_way_as_long_as_nothing_is_passed(lab: Lab) -> None:
    end = lab.snapshot()
    lab.rewind(1)
    lab.step()
    lab.rewind(6)
    assert lab.snapshot() == end
    lab.rewind(1)
    lab.step(2)
    with pytest.raises(ConfigError, match="between 0 and 3"):
        lab.rewind(6)
    assert len(lab.inputs) == 1, "the second request, which came after step 2, was passed"


def test_a_lab_can_be_forked_at_what_was_taken_back(lab: Lab) -> None:
    end = lab.snapshot()
    lab.rewind(1)
    with lab.fork(6) as newer, lab.fork() as now:
        assert newer.snapshot() == end and now.snapshot() == lab.snapshot()


def test_an_open_step_is_taken_back_or_finished(lab: Lab) -> None:
    events = story(lab)
    lab.rewind(3)
    lab.next_phase()
    lab.next_phase()
    lab.rewind(3)
    assert story(lab) == events_until(events, 3) and lab.snapshot().step == 3
    lab.next_phase()
    lab.rewind(5)
    assert story(lab) == events_until(events, 5)
    lab.next_phase()
    lab.rewind(1)
    assert story(lab) == events_until(events, 1)
    lab.rewind(6)
    assert story(lab) == events


def test_it_pauses_the_background() -> None:
    with Lab("simulated", num_blocks=600, block_size=4) as lab:
        lab.add(token_ids=[1, 2, 3], max_tokens=1500)
        lab.step(5)
        lab.start()
        lab.rewind(3)
        assert not lab.is_running and lab.snapshot().step == 3


def start_without_end(lab: Lab) -> None:
    """Run in the background to the end of the work, before which this thread may get no time."""
    background = lab.session.runs.background
    step = background._step

    def step_without_end() -> bool:
        step()
        return True

    background._step = step_without_end
    lab.start()


def test_a_refused_one_lets_the_background_run_on() -> None:
    with Lab("simulated", num_blocks=2600, block_size=4, check=False) as lab:
        lab.add(token_ids=[1, 2, 3], max_tokens=10_000)
        start_without_end(lab)
        with pytest.raises(ConfigError, match="step must be between 0 and"):
            lab.rewind(10**9)
        assert lab.is_running


def test_where_the_tier_keeps_what_it_holds_the_background_runs_on_too() -> None:
    with Lab("simulated", num_blocks=2600, block_size=4, check=False, external=HostStore()) as lab:
        lab.add(token_ids=[1, 2, 3], max_tokens=10_000)
        start_without_end(lab)
        with pytest.raises(ConfigError, match="cannot be emptied"):
            lab.rewind(0)
        assert lab.is_running


def test_a_step_that_was_not_taken_is_refused(lab: Lab) -> None:
    before = state(lab)
    with pytest.raises(ConfigError, match=r"between 0 and 6 \(the lab has taken 6 steps\), got 7"):
        lab.rewind(7)
    assert state(lab) == before


def test_without_a_recording(lab: Lab) -> None:
    with Lab("simulated", num_blocks=16, block_size=4, record=False) as silent:
        silent.generate([[1, 2, 3, 4, 5]], max_tokens=6)
        end = state(silent)
        silent.rewind(2)
        assert silent.snapshot().step == 2
        silent.rewind(6)
        assert state(silent) == end


def test_with_a_short_recording() -> None:
    with Lab("simulated", num_blocks=64, block_size=4, record=60) as lab:
        lab.generate([[1, 2, 3]], max_tokens=60)
        events = story(lab)
        lab.rewind(1)
        assert lab.timeline is not None and lab.timeline.num_dropped == 0 and lab.snapshot().step == 1
        lab.rewind(60)
        assert story(lab) == events


def test_a_store_of_ones_own_and_a_folder_are_refused(tmp_path: Any) -> None:
    for external in (HostStore(), tmp_path):
        with Lab("simulated", num_blocks=16, block_size=4, external=external) as lab:
            lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
            before = state(lab)
            with pytest.raises(ConfigError, match=r"cannot be emptied: lab.fork\(external=None\)"):
                lab.rewind(0)
            assert state(lab) == before


def test_reset_forgets_the_inputs(lab: Lab) -> None:
    lab.reset()
    with pytest.raises(ConfigError, match=r"between 0 and 0 \(the lab has taken 0 steps\)"):
        lab.rewind(1)
    lab.rewind(0)


def test_a_closed_lab_stays_where_it_is(lab: Lab) -> None:
    lab.close()
    with pytest.raises(LabClosedError):
        lab.rewind(1)


def test_not_inside_a_listener(lab: Lab) -> None:
    lab.rewind(3)
    lab.hooks.subscribe(lambda event: lab.rewind(1), StepStarted)
    lab.step()
    assert "inside a hook listener" in str(lab.hooks.failures[0].error) and lab.snapshot().step == 4


def test_violations_are_found_again(lab: Lab) -> None:
    lab.rewind(2)
    assert lab.check() == lab.violations == []


# -- what goes wrong on the way ----------------------------------------------------------------------------------------


def test_an_interrupt_leaves_the_lab_between_two_steps_and_says_where(lab: Lab, monkeypatch: Any) -> None:
    events = story(lab)
    sample = lab.session.model.runner.sample

    def sample_and_interrupt(plan: Any, logits: Any) -> Any:
        if lab.session.stepper.engine.step_number == 4:
            press_ctrl_c()
        return sample(plan, logits)

    with monkeypatch.context() as patched:
        patched.setattr(lab.session.model.runner, "sample", sample_and_interrupt)
        with pytest.raises(KeyboardInterrupt) as interrupted:
            lab.rewind(5)
    note = "The lab is now after step 4 of 5; lab.rewind(5) continues."
    assert interrupted.value.__notes__ == [note]
    assert story(lab) == events_until(events, 4)[: len(story(lab))] and lab.snapshot().step == 4
    assert lab.check() == [] and lab.phase == "update"
    lab.rewind(5)
    assert story(lab) == events_until(events, 5)
    lab.rewind(6)
    assert story(lab) == events


def test_an_interrupt_at_any_step(lab: Lab) -> None:
    """Wherever it stops, the inputs not yet repeated stay known."""
    events, sample = story(lab), lab.session.model.runner.sample
    for stop in range(1, 6):

        def sample_and_interrupt(plan: Any, logits: Any, stop: int = stop) -> Any:
            if lab.session.stepper.engine.step_number == stop:
                press_ctrl_c()
            return sample(plan, logits)

        lab.rewind(0)
        lab.session.model.runner.sample = sample_and_interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            lab.rewind(6)
        lab.session.model.runner.sample = sample  # type: ignore[method-assign]
        assert lab.snapshot().step == stop
        lab.rewind(6)
        assert story(lab) == events


def test_an_error_on_the_way_is_reported_and_the_way_stays_known(lab: Lab) -> None:
    events = story(lab)
    lab.rewind(2)
    with broken(lab, "forward", MemoryError("no more")), pytest.raises(MemoryError) as failed:
        lab.rewind(6)
    assert "after step 2 of 6" in failed.value.__notes__[0]
    assert lab.snapshot().step == 2 and lab.check() == []
    with lab.fork() as fork:
        assert state(fork) == state(lab), "what the broken step left behind is part of where it stands"
    lab.rewind(6)
    assert story(lab) == events, "it began again from the start, without that accident"


def test_going_on_after_an_error_makes_it_part_of_the_way(lab: Lab) -> None:
    lab.rewind(2)
    with broken(lab, "forward", MemoryError("no more")), pytest.raises(MemoryError):
        lab.rewind(6)
    lab.add(token_ids=range(6), max_tokens=3)
    lab.run()
    with lab.fork() as fork:
        assert story(fork) == story(lab) and state(fork) == state(lab)


def test_broken_steps_are_broken_again() -> None:
    with Lab("simulated", num_blocks=4, block_size=4) as lab:
        lab.generate([list(range(13))], max_tokens=1)
        lab.add(token_ids=range(50, 60), max_tokens=3)
        with broken(lab, "sample", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
            lab.step()
        lab.add(token_ids=range(13), max_tokens=2)
        lab.run()
        events, end = story(lab), state(lab)
        assert {getattr(event, "reason", "") for event in events} >= {"distrusted", "KeyboardInterrupt"}
        lab.rewind(lab.snapshot().step)
        lab.rewind(0)
        lab.rewind(lab.inputs[-1].num_steps)
        with lab.fork(end[0].step) as fork:
            assert story(fork) == events and state(fork) == end


# -- the real model ----------------------------------------------------------------------------------------------------


def test_the_same_tokens_on_the_real_model(smollm2: Lab) -> None:
    smollm2.add("Once upon a time", max_tokens=10)
    smollm2.add("Once upon a time", max_tokens=10, temperature=0.9, seed=5)
    smollm2.step(4)
    smollm2.add("The capital of France is", max_tokens=6)
    smollm2.run()
    events, outputs = story(smollm2), [smollm2.output(i) for i in range(3)]
    smollm2.rewind(2)
    assert story(smollm2) == events_until(events, 2)
    smollm2.rewind(events[-1].step)  # type: ignore[attr-defined]
    assert story(smollm2) == events and [smollm2.output(i) for i in range(3)] == outputs


def test_the_repeated_steps_are_a_run_which_views_follow() -> None:
    """A view would play a step by hand: it would stay at the beginning if a message came between the steps."""
    seen: list[bool] = []
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add(token_ids=range(9), max_tokens=9)
        lab.step(3)
        lab.hooks.subscribe(lambda event: seen.append(lab.is_running), StepStarted)
        lab.rewind(2)
        assert seen == [True, True] and not lab.is_running
        lab.step()
    assert seen == [True, True, False]


def test_of_a_comparison_too() -> None:
    seen: list[bool] = []
    with compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4) as comparison:
        comparison.add(token_ids=range(9), max_tokens=9)
        comparison.step()
        comparison.step()
        comparison.left.hooks.subscribe(lambda event: seen.append(comparison.is_running), StepStarted)
        comparison.rewind(1)
        assert seen == [True] and not comparison.is_running
        comparison.step()
    assert seen == [True, False]
