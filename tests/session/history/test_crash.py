"""A part that raises: the step is rolled back, and the state at that moment can be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import labengine
from labengine import Lab, Parts
from labengine.config import ConfigError
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.merge_policy import LateMergeComparingPrefixes
from labengine.core.request import Request
from labengine.events import StepFailed, StepRolledBack, StepStarted
from labengine.session.history.inputs import BrokenStep

EQUAL = list(range(1, 14))
NEXT_PROMPT = list(range(50, 60))


class FailsForD(LateMergeComparingPrefixes):
    """Raises when the fourth request's blocks are compared."""

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        if request.request_id == 3:
            raise ZeroDivisionError("no <b>target</b>")
        return super().merge_target(mapped, block, request, link)


WRONG = Parts(merge_policy=FailsForD)
RIGHT = Parts(merge_policy=LateMergeComparingPrefixes)


def two_steps_and_two_more_requests(parts: Parts | None = None, **settings: object) -> Lab:
    lab = Lab("simulated", num_blocks=32, block_size=4, parts=parts, **settings)  # type: ignore[arg-type]
    for prompt in (EQUAL, EQUAL):
        lab.add(token_ids=prompt, max_tokens=6)
    lab.step(2)
    for prompt in (NEXT_PROMPT, NEXT_PROMPT):
        lab.add(token_ids=prompt, max_tokens=3)
    return lab


@pytest.fixture
def crashed() -> Lab:
    """A lab whose third step has failed."""
    lab = two_steps_and_two_more_requests(WRONG)
    with pytest.raises(ZeroDivisionError):
        lab.step()
    return lab


def test_a_crash_names_step_class_and_method_and_keeps_the_steps_events(crashed: Lab) -> None:
    crash = crashed.crash
    assert crash is not None
    assert (crash.step, crash.error, crash.message) == (3, "ZeroDivisionError", "no <b>target</b>")
    assert crash.method == "FailsForD.merge_target" and isinstance(crash.exception, ZeroDivisionError)
    assert isinstance(crash.events[0], StepStarted) and isinstance(crash.events[-1], StepFailed)
    assert crashed.snapshot().step == 2


def test_goto_crash_shows_the_moment_before_the_step_was_taken_back(crashed: Lab) -> None:
    crash, timeline = crashed.crash, crashed.timeline
    assert crash is not None and crash.moment is not None and timeline is not None
    assert isinstance(timeline.events(crash.moment, crash.moment + 1)[0], StepRolledBack)
    look = crashed.goto("crash")
    assert look.moment == crash.moment == crashed.moment
    assert "which failed here in FailsForD.merge_target: ZeroDivisionError" in look.text
    held = timeline.state(look.moment).snapshot()
    assert held.requests[2].block_tables != ((),) != held.requests[3].block_tables, "what the step had allocated"
    assert crashed.snapshot().requests[2].block_tables == ((),)


def test_a_crash_of_the_first_step_can_be_looked_at() -> None:
    class FailsAtOnce(BlockPool):
        def take(self, num_blocks: int) -> list[int]:
            raise ZeroDivisionError("no blocks today")

    lab = Lab("simulated", num_blocks=32, block_size=4, parts=Parts(block_pool=FailsAtOnce))
    lab.add(token_ids=EQUAL, max_tokens=2)
    with pytest.raises(ZeroDivisionError):
        lab.step()
    assert lab.goto("crash").text.startswith("step 1, which failed here in FailsAtOnce.take: ZeroDivisionError")


def test_what_cannot_be_gone_to_is_refused(crashed: Lab) -> None:
    with pytest.raises(ConfigError, match="event=3"):
        crashed.goto("crash", event=3)
    crashed.reset()
    assert crashed.crash is None
    with pytest.raises(ConfigError, match="no part has raised"):
        crashed.goto("crash")


def test_without_a_recording_a_crash_is_kept_and_cannot_be_gone_to() -> None:
    lab = two_steps_and_two_more_requests(WRONG, record=False)
    with pytest.raises(ZeroDivisionError):
        lab.step()
    assert lab.crash is not None and lab.crash.events == () and lab.crash.moment is None
    with pytest.raises(ConfigError, match="record=False"):
        lab.goto("crash")


def test_a_crash_is_saved_with_the_recording(crashed: Lab, tmp_path: Path) -> None:
    crashed.save(tmp_path / "run.lab")
    trace = labengine.open(tmp_path / "run.lab")
    assert crashed.crash is not None and trace.crash is not None
    assert trace.crash.exception is None
    assert (str(trace.crash), trace.crash.moment) == (str(crashed.crash), crashed.crash.moment)
    assert trace.crash.events == crashed.crash.events
    assert (
        crashed.goto("crash").text
        == f"{trace.goto('crash').text}\nOnly the views have moved; the engine is still after step 2."
    )


def test_a_recording_without_a_crash_has_none(tmp_path: Path) -> None:
    lab = two_steps_and_two_more_requests()
    lab.save(tmp_path / "run.lab")
    assert lab.crash is None and labengine.open(tmp_path / "run.lab").crash is None


def test_a_fork_with_the_same_parts_is_at_the_same_crash(crashed: Lab) -> None:
    fork = crashed.fork()
    assert str(fork.crash) == str(crashed.crash)
    assert fork.timeline is not None and crashed.timeline is not None
    assert fork.timeline.events() == crashed.timeline.events()


def test_a_fork_with_other_parts_passes_the_crash(crashed: Lab) -> None:
    fork, never_crashed = crashed.fork(parts=RIGHT), two_steps_and_two_more_requests(RIGHT)
    assert fork.crash is None and fork.snapshot() == never_crashed.snapshot()
    for lab in (fork, never_crashed):
        lab.run()
    assert fork.crash is None and fork.snapshot() == never_crashed.snapshot()


def test_a_fork_whose_parts_raise_is_at_its_crash() -> None:
    sound = two_steps_and_two_more_requests()
    sound.run()
    with pytest.warns(UserWarning, match=r"after step 2 of \d+, where its parts fail: step 3 failed in FailsForD"):
        fork = sound.fork(parts=WRONG)
    assert fork.crash is not None and fork.snapshot().step == 2
    assert sound.crash is None
    fork.abort(3)
    fork.run()
    assert [fork.output(i).finish_reason for i in range(3)] == ["length"] * 3


def test_a_rewind_passes_and_repeats_a_crash(crashed: Lab) -> None:
    before = crashed.snapshot()
    crashed.rewind(1)
    assert crashed.snapshot().step == 1 and crashed.crash is not None, "kept until reset() or the next one"
    crashed.rewind(2)
    assert crashed.snapshot() == before
    assert crashed.goto("crash").moment == crashed.crash.moment


def test_a_script_of_the_session_goes_through_the_crash(crashed: Lab) -> None:
    names: dict[str, object] = {}
    exec(crashed.to_code(), names)
    lab = names["lab"]
    assert isinstance(lab, Lab) and str(lab.crash) == str(crashed.crash)
    assert lab.snapshot() == crashed.snapshot()


class FailsToUndo(BlockPool):
    """Notes an inverse that raises."""

    def take(self, num_blocks: int) -> list[int]:
        self._journal.record((self.lose, 7))
        return super().take(num_blocks)

    def lose(self, block_id: int) -> None:
        raise OSError("lost")

    def register(self, *args: object) -> None:
        raise KeyError("register")


def test_an_inverse_that_raises_keeps_no_other_from_being_run() -> None:
    lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=FailsToUndo))
    lab.add(token_ids=EQUAL, max_tokens=2)
    before = lab.snapshot()
    with pytest.raises(KeyError) as raised:
        lab.step()
    assert any("could not be rolled back completely: OSError('lost')" in note for note in raised.value.__notes__)
    assert lab.snapshot() == before
    assert lab.crash is not None and lab.crash.method == "FailsToUndo.register"


def test_in_a_comparison_one_side_is_at_its_crash_and_the_other_is_led_on() -> None:
    wrong, right = two_steps_and_two_more_requests(WRONG), two_steps_and_two_more_requests(RIGHT)
    comparison = labengine.compare(wrong, right)
    with pytest.raises(ZeroDivisionError) as raised:
        comparison.step()
    assert "this was the left side of the comparison" in raised.value.__notes__
    comparison.step()
    assert (wrong.snapshot().step, right.snapshot().step) == (2, 4)
    look = comparison.goto("crash")
    assert (look.left.moment, look.right.moment) == (wrong.crash.moment, right.timeline.step_moments(3)[1])  # type: ignore[union-attr]
    comparison.run()
    assert wrong.snapshot().step == 2 and right.output(3).finish_reason == "length"


def test_a_comparison_without_a_crash_has_no_such_moment() -> None:
    comparison = labengine.compare(two_steps_and_two_more_requests(RIGHT), two_steps_and_two_more_requests(RIGHT))
    with pytest.raises(ConfigError, match="neither side has raised"):
        comparison.goto("crash")
    with pytest.raises(ConfigError, match="only one side"):
        comparison.goto("crash", event=1)


class RaisesOnFree(BlockPool):
    """Raises when it frees a block."""

    def release(self, block_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        raise LookupError("release")


def test_an_abort_that_raises_has_never_happened() -> None:
    lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=RaisesOnFree))
    lab.add(token_ids=EQUAL, max_tokens=6)
    lab.step()
    assert lab.timeline is not None
    before, events = lab.snapshot(), lab.timeline.events()
    with pytest.raises(LookupError):
        lab.abort(0)
    assert lab.snapshot() == before and lab.timeline.events() == events
    assert lab.inputs[-1].num_steps == 0 and lab.violations == [] and lab.check() == []
    lab.step()


class LoadError(Exception):
    """A user's class."""


class FailsToLoad(LateMergeComparingPrefixes):
    """Raises an exception of that name."""

    def merge_target(self, mapped: Sequence[Block], block: Block, request: Request, link: int) -> Block | None:
        if request.request_id == 3:
            raise LoadError("no such adapter")
        return super().merge_target(mapped, block, request, link)


def test_an_exception_with_the_name_of_the_engines_own_is_kept_for_fork_and_rewind() -> None:
    lab = two_steps_and_two_more_requests(Parts(merge_policy=FailsToLoad))
    with pytest.raises(LoadError):
        lab.step()
    assert lab.crash is not None and lab.crash.error == "LoadError"
    kept_input = lab.inputs[-1]
    assert isinstance(kept_input, BrokenStep) and kept_input.failed is not None and kept_input.reason == "LoadError"
    with lab.fork() as fork:
        assert fork.inputs == lab.inputs
        assert fork.crash is not None and fork.crash.message == "no such adapter"
