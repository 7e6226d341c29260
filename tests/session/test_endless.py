"""A part, hook or connector that makes a step endless: one Ctrl-C or pause ends it and reports the place."""

from __future__ import annotations

import _thread
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ctrl_c import press_ctrl_c_in_main_thread
from endless_parts import EndlessStore, EndlessTouch, switch
from interrupting import assert_no_thread_is_left, assert_nothing_held, python_takes_ctrl_c
from labengine import Parts, compare
from labengine.check.watch import Watch
from labengine.check.watched_runner import WatchedRunner
from labengine.core.step_plan import StepPlan
from labengine.engine import endless, interrupts, safe_points
from labengine.engine.endless import EndlessLoop
from labengine.engine.safe_points import Care
from labengine.events import StepStarted, ViolationFound
from labengine.lab import Lab
from labengine.record.hooks import Hooks
from labengine.record.violation import Violation
from labengine.session.background import InterruptibleCall
from labengine.session.compare.comparison import Comparison
from waiting import PATIENCE, wait_until

PROMPT = list(range(1, 10))
LONGER = [*PROMPT, *range(50, 59)]
"""Its first two blocks are a hit; the tier is asked for the others."""


@pytest.fixture(autouse=True)
def soon_impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Endless after a twentieth of a second; no thread is left behind."""
    monkeypatch.setattr(endless, "PATIENCE_S", 0.05)
    switch.is_on = switch.is_inside = False
    with python_takes_ctrl_c():
        yield
    switch.is_on = False
    assert_nothing_held()
    assert_no_thread_is_left()


def lab_with(kind: str) -> Lab:
    """A lab whose next step is endless while the switch is on."""
    parts = Parts(block_pool=EndlessTouch) if kind == "part" else None
    store = EndlessStore(max_blocks=8) if kind == "connector" else None
    lab = Lab("simulated", num_blocks=8, block_size=4, parts=parts, external=store)
    if kind == "hook":
        lab.hooks.subscribe(lambda event: switch.loop(), StepStarted)
    lab.add(token_ids=PROMPT, max_tokens=1)
    lab.step()
    lab.add(token_ids=LONGER, max_tokens=4)
    return lab


@contextmanager
def one_ctrl_c_ends() -> Iterator[None]:
    """Ctrl-C is pressed once when the code inside has become endless; the interrupt says which loop it ended."""
    switch.is_on = True
    _thread.start_new_thread(_press_when_inside, ())
    with pytest.raises(KeyboardInterrupt) as caught:
        yield
    switch.is_on = False
    (note, *_) = caught.value.__notes__
    assert "had not returned after 0.05 s. It was in Switch.loop (endless_parts.py:" in note


def _press_when_inside() -> None:
    wait_until(lambda: switch.is_inside)
    press_ctrl_c_in_main_thread()


def _press_when_a_call_waits(lab: Lab) -> None:
    wait_until(lambda: lab.session.stepper._lock._queue)
    press_ctrl_c_in_main_thread()


def _press_twice() -> None:
    _press_when_inside()
    wait_until(lambda: interrupts._deferral._held is not None)
    _press_when_inside()


@contextmanager
def unchanged(*labs: Lab) -> Iterator[None]:
    """The labs are unchanged and intact, and take their next step, which is no longer endless."""
    before = [lab.snapshot() for lab in labs]
    yield
    switch.is_on = False
    assert [lab.snapshot() for lab in labs] == before
    for lab in labs:
        assert lab.check() == [] and not lab.is_running
        assert lab.timeline is not None and lab.timeline.state().snapshot() == lab.snapshot()
        report = lab.step()
        assert report and report.sampled


ENDLESS = pytest.mark.parametrize("kind", ["part", "hook", "connector"])


@ENDLESS
@pytest.mark.parametrize("call", [Lab.step, Lab.run, Lab.next_phase, lambda lab: [*lab.stream(1)], Lab.fork])
def test_a_call_that_is_endless(kind: str, call: Callable[[Lab], object]) -> None:
    if (kind, call) == ("hook", Lab.fork):
        return  # a fork has no hooks but its own
    with lab_with(kind) as lab:
        if call is Lab.fork:
            lab.step(2)
            lab.add(token_ids=PROMPT, max_tokens=4)
        if (kind, call) == ("connector", Lab.fork):
            call = lambda lab: lab.fork(external=EndlessStore(max_blocks=8))  # noqa: E731
        with unchanged(lab), one_ctrl_c_ends():
            call(lab)


@pytest.mark.parametrize("kind", ["part", "hook"])
def test_a_rewind_that_is_endless(kind: str) -> None:
    with lab_with(kind) as lab:
        lab.step(2)
        before = lab.snapshot()
        with one_ctrl_c_ends():
            lab.rewind(2)
        assert lab.check() == [] and lab.snapshot().step < 2
        lab.rewind(3)
        assert lab.snapshot() == before


@contextmanager
def pair_with_an_endless_side() -> Iterator[Comparison]:
    with compare(Parts(block_pool=EndlessTouch), "vllm", num_blocks=8, block_size=4) as both:
        both.add(token_ids=PROMPT, max_tokens=1)
        both.step()
        both.add(token_ids=LONGER, max_tokens=4)
        yield both


@pytest.mark.parametrize("call", [Comparison.step, Comparison.run, Comparison.next_phase])
def test_a_comparison_that_is_endless(call: Callable[[Comparison], object]) -> None:
    with pair_with_an_endless_side() as both, unchanged(both.left, both.right), one_ctrl_c_ends():  # type: ignore[arg-type]
        call(both)


def test_a_comparison_whose_rewind_is_endless() -> None:
    with pair_with_an_endless_side() as both:
        both.step()
        before = both.snapshots
        both.step()
        with one_ctrl_c_ends():
            both.rewind(2)
        both.rewind(2)
        assert both.snapshots == before


def test_the_second_ctrl_c_need_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "PATIENCE_S", PATIENCE)
    with lab_with("part") as lab, unchanged(lab):
        switch.is_on = True
        _thread.start_new_thread(_press_twice, ())
        with pytest.raises(KeyboardInterrupt):
            lab.step()


# -- in the background -------------------------------------------------------------------------------------------------


def started(on: Lab | Comparison) -> None:
    """It steps in the background, and its step has become endless."""
    switch.is_on = True
    on.start()
    wait_until(lambda: switch.is_inside)


def assert_interrupted(error: BaseException | None) -> None:
    assert isinstance(error, KeyboardInterrupt)
    assert "It was in Switch.loop" in error.__notes__[0]


@ENDLESS
def test_pause_ends_a_step_in_the_background(kind: str) -> None:
    with lab_with(kind) as lab, unchanged(lab):
        started(lab)
        lab.pause()
        assert_interrupted(lab.background_error)


@ENDLESS
def test_close_ends_a_step_in_the_background(kind: str) -> None:
    lab = lab_with(kind)
    before = lab.snapshot()
    started(lab)
    lab.close()
    assert lab.snapshot() == before and lab.check() == []
    assert_interrupted(lab.background_error)


@pytest.mark.parametrize("call", [Lab.snapshot, Lab.step, Lab.check, lambda lab: lab.add(token_ids=[1], max_tokens=1)])
def test_the_interrupt_button_ends_a_step_for_which_a_call_waits(call: Callable[[Lab], object]) -> None:
    with lab_with("part") as lab:
        before = lab.snapshot()
        started(lab)
        _thread.start_new_thread(_press_when_a_call_waits, (lab,))
        with pytest.raises(KeyboardInterrupt):
            call(lab)
        wait_until(lambda: not lab.is_running)
        assert_interrupted(lab.background_error)
        assert lab.snapshot() == before and lab.check() == []


def test_pause_ends_a_comparisons_step_in_the_background() -> None:
    with pair_with_an_endless_side() as both, unchanged(both.left, both.right):  # type: ignore[arg-type]
        started(both)
        both.pause()
        assert_interrupted(both.background_error)


def test_close_ends_a_comparisons_step_in_the_background() -> None:
    with pair_with_an_endless_side() as both:
        started(both)
        both.close()
        assert_interrupted(both.background_error)
        assert [lab.snapshot().step for lab in (both.left, both.right)] == [1, 1]


def test_a_call_that_has_ended_is_not_interrupted_although_its_thread_has_another_one() -> None:
    """A thread that ends leaves its id to a thread that may be another lab's."""
    with lab_with("part") as lab:
        ended = lab.session.runs.background.post(InterruptibleCall).result(PATIENCE)
        ended.run(lambda: None)
        started(lab)
        assert not ended._interrupt(Care.OF_LOCKS, EndlessLoop(ended._thread_id))
        lab.pause()
        assert_interrupted(lab.background_error)


def test_a_views_pause_ends_it_too() -> None:
    """Its command is posted to the busy thread."""
    with lab_with("part") as lab, unchanged(lab):
        started(lab)
        lab.view_source().post("pause").result(PATIENCE)
        assert_interrupted(lab.background_error)
    switch.is_inside = False
    with pair_with_an_endless_side() as both, unchanged(both.left, both.right):  # type: ignore[arg-type]
        started(both)
        both.post_command("pause").result(PATIENCE)
        assert_interrupted(both.background_error)


_LOOKING_AMONG_GARBAGE = """
import gc, threading, time
from labengine.engine.endless import frame_of

class LetsOthersRun:
    def __init__(self):
        self.me = self
    def __del__(self):
        time.sleep(0)

def look():
    for _ in range(300):
        LetsOthersRun()
        frame_of(main)

main = threading.get_ident()
gc.set_threshold(1)
threads = [threading.Thread(target=look) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert gc.isenabled()
"""


def test_to_look_where_a_thread_is_never_stops_all_of_them() -> None:
    """With sys._current_frames() alone this process stands still at once (CPython issue 106883)."""
    subprocess.run([sys.executable, "-c", _LOOKING_AMONG_GARBAGE], check=True, timeout=PATIENCE)


class LooksAtItself:
    """A runner, an observer and a listener: notes in each call whether it could be interrupted there."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def look(self, *_: object) -> None:
        self.seen.append(safe_points.is_safe_point(sys._getframe(), Care.OF_THE_CORE))

    forward = sample = read_block = write_block = look
    before_forward = after_forward = block_overwritten = look


def test_a_runner_may_be_interrupted_although_it_is_watched() -> None:
    runner = LooksAtItself()
    WatchedRunner(runner, LooksAtItself()).forward(StepPlan(()))  # type: ignore[arg-type]
    assert runner.seen == [True]


def test_the_watch_itself_is_not_interrupted() -> None:
    hooks, listener = Hooks(), LooksAtItself()
    hooks.subscribe(listener.look, ViolationFound)
    Watch(hooks)._keep(Violation("said", "something"), None)
    assert listener.seen == [False]
