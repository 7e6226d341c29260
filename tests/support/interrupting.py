"""Ctrl-C in every public method of a lab and of a comparison, and what has to hold afterwards."""

from __future__ import annotations

import _thread
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ctrl_c import press_ctrl_c_in_main_thread, python_handles_sigint
from driving import difference
from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.engine import interrupts
from labengine.events import BlockFreed
from labengine.lab import Lab
from labengine.session.compare.comparing import compare
from labengine.session.compare.comparison import Comparison
from labengine.session.history import breakpoints
from labengine.session.saved.regression import NoTestError
from labengine_widgets.why import WhyError
from waiting import PATIENCE, join, wait_until

NUM_NAPS = 20
"""Naps after which a press has arrived. One is enough, unless Python has swallowed it in a weak reference's call."""

Act = Callable[[Any], object]


@contextmanager
def python_takes_ctrl_c() -> Iterator[None]:
    """Install Python's own handler of SIGINT; threads that live already count as left by other tests."""
    note_threads_of_others()
    with python_handles_sigint():
        yield


@contextmanager
def another_thread_at_work(*labs: Lab) -> Iterator[None]:
    """A thread that looks at the labs again and again, and so asks for their locks all the time. It never fails."""
    is_over = threading.Event()

    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not is_over.wait(0.001):
                for lab in labs:
                    lab.snapshot()
                    lab.status(), lab.stats()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
    join(thread)  # it goes on where a lock was left taken
    assert failures == []


def prompt(length: int, of: int = 0) -> list[int]:
    """Token ids; equal beginnings for an equal `of`."""
    return [of * 7 + i for i in range(1, length + 1)]


def _stream(lab: Lab) -> None:
    for _ in lab.stream(lab.add(token_ids=prompt(5), max_tokens=3)):
        pass


def _start_and_pause(lab: Any) -> None:
    lab.start()
    lab.pause()


def _breakpoint(lab: Any) -> None:
    with lab.break_on(BlockFreed):
        lab.step()


def _fill_external(lab: Lab) -> None:
    with lab.fork(external="host") as other:
        other.fill_external(token_ids=prompt(9))


def _hand_over(lab: Lab) -> None:
    """Move a request between two forks; the lab itself stays as it is."""
    with lab.fork() as giver, lab.fork(0) as taker:
        moved = giver.add(token_ids=prompt(9), max_tokens=3)
        giver.step()
        giver.hand_over(moved, taker)


def _fork(lab: Lab) -> None:
    lab.fork().close()


def _take_test(of: Lab | Comparison) -> None:
    """Ask for a test that is run both ways, and refused: nothing here goes wrong."""
    with suppress(NoTestError):
        of.to_test("lab.snapshot().step == 2")


def _rerun(lab: Lab) -> None:
    with lab.rerun(BlockPool):
        pass


def _close(lab: Lab) -> None:
    with lab.fork() as other:
        other.start()
        other.close()


def _close_pair(both: Comparison) -> None:
    with compare(both.left.fork(), both.right.fork()) as others:  # type: ignore[attr-defined]
        others.start()
        others.close()


def _compare(lab: Lab) -> None:
    with lab.fork() as other:
        lab.compare(other)


def _look_back(on: Any) -> None:
    on.selection = ("block", 1)
    on.moment = on.timeline.num_dropped
    on.selection = on.moment = None


def _select(both: Comparison) -> None:
    both.selection = ("block", 1)
    both.selection = None


def public_names(kind: type) -> tuple[set[str], set[str]]:
    """(methods, properties) of a class that a user may call and read."""
    names = [name for name in dir(kind) if not name.startswith("_")]
    properties = {name for name in names if isinstance(inspect.getattr_static(kind, name), property)}
    return {*names} - properties, properties


def _look_at_properties(kind: type) -> Act:
    return lambda on: [getattr(on, name) for name in sorted(public_names(kind)[1])]


def acts_of_a_lab(folder: Path) -> dict[str, Act]:
    """What is done to a lab, by the method that it is about. A lab is left as it was before an act, or after it."""
    return {
        "chat": lambda lab: lab.chat([{"role": "user", "content": "Hi there"}], max_tokens=2),
        "encode": lambda lab: lab.encode("Once upon a time"),
        "token_text": lambda lab: lab.token_text(1),
        "kv": lambda lab: lab.kv(0, 0),
        "forward": lambda lab: lab.forward(),
        "show": lambda lab: lab.show(),
        "close_views": lambda lab: lab.close_views(),
        "view": lambda lab: lab.view("pool"),
        "view at": lambda lab: lab.view("tables", at=1),
        "view_source": lambda lab: lab.view_source().post("step").result(PATIENCE),
        "events_frame": lambda lab: lab.events_frame(),
        "export_html": lambda lab: lab.export_html(folder / "run.html"),
        "close": _close,
        "compare": _compare,
        "moment, selection": _look_back,
        "properties": _look_at_properties(Lab),
        "add": lambda lab: lab.add(token_ids=prompt(9), max_tokens=3),
        "several answers": lambda lab: lab.add(token_ids=prompt(5), n=2, max_tokens=3),
        "branch": lambda lab: lab.branch(0),
        "abort": lambda lab: lab.abort(0),
        "reset_prefix_cache": lambda lab: lab.reset_prefix_cache(),
        "fill_external": _fill_external,
        "hand_over": _hand_over,
        "step": lambda lab: lab.step(),
        "steps": lambda lab: lab.step(3),
        "next_phase": lambda lab: lab.next_phase(),
        "phases": lambda lab: list(lab.phases()),
        "run": lambda lab: lab.run(),
        "run until": lambda lab: lab.run(until=lambda lab: lab.snapshot().step % 3 == 0),
        "start, pause": _start_and_pause,
        "generate": lambda lab: lab.generate([prompt(6), prompt(6, 1)], max_tokens=2),
        "stream": _stream,
        "output": lambda lab: lab.output(0),
        "snapshot": lambda lab: lab.snapshot(),
        "fold": lambda lab: lab.fold(),
        "check": lambda lab: lab.check(),
        "stats": lambda lab: lab.stats(),
        "status": lambda lab: lab.status(),
        "break_on": _breakpoint,
        "post": lambda lab: lab.post(lab.step).result(PATIENCE),
        "goto": lambda lab: lab.goto(0),
        "back": lambda lab: lab.back(),
        "why": lambda lab: lab.why(block=0),
        "to_code": lambda lab: lab.to_code(),
        "to_test": _take_test,
        "rerun": _rerun,
        "save": lambda lab: lab.save(folder / "run.lab"),
        "rewind": lambda lab: lab.rewind(lab.num_known_steps // 2),
        "fork": _fork,
        "reset": lambda lab: lab.reset(),
        "repr": repr,
    }


def acts_of_a_comparison(folder: Path) -> dict[str, Act]:
    """The same for two labs in lockstep."""
    return {
        "chat": lambda both: both.chat([{"role": "user", "content": "Hi there"}], max_tokens=2),
        "snapshot": lambda both: both.snapshot(),
        "back": lambda both: both.back(),
        "forward": lambda both: both.forward(),
        "post": lambda both: both.post(both.step).result(PATIENCE),
        "post_command": lambda both: both.post_command("step").result(PATIENCE),
        "show": lambda both: both.show(),
        "show_in": lambda both: both.show_in(both.show()),
        "export_html": lambda both: both.export_html(folder / "both.html"),
        "fork": lambda both: both.fork(),
        "follow_up": lambda both: both.follow_up(),
        "selection": _select,
        "close": _close_pair,
        "properties": _look_at_properties(Comparison),
        "add": lambda both: both.add(token_ids=prompt(9), max_tokens=3),
        "several answers": lambda both: both.add(token_ids=prompt(5), n=2, max_tokens=3),
        "branch": lambda both: both.branch(0),
        "abort": lambda both: both.abort(0),
        "step": lambda both: both.step(),
        "next_phase": lambda both: both.next_phase(),
        "run": lambda both: both.run(),
        "start, pause": _start_and_pause,
        "break_on": _breakpoint,
        "first_difference": lambda both: both.first_difference(),
        "to_test": _take_test,
        "goto": lambda both: both.goto(0),
        "why": lambda both: both.why(),
        "rewind": lambda both: both.rewind(0),
        "reset": lambda both: both.reset(),
        "repr": repr,
    }


def busy_lab(**settings: Any) -> Lab:
    """Two requests with a common beginning, some steps taken and some left."""
    lab = Lab(**{"model": "simulated", "num_blocks": 12, "block_size": 4} | settings)  # type: ignore[arg-type]
    set_up(lab)
    return lab


def busy_pair(**settings: Any) -> Comparison:
    """The same in two editions."""
    both = compare("labengine", "vllm", **{"num_blocks": 12, "block_size": 4} | settings)
    set_up(both)
    return both


def set_up(lab: Any) -> None:
    """The same requests and steps on a lab or a comparison that is empty."""
    lab.add(token_ids=prompt(9), max_tokens=4)
    lab.step()
    lab.add(token_ids=prompt(10), max_tokens=5)
    lab.step()


def interrupted(call: Callable[[], object]) -> str:
    """Call; the file and line where a KeyboardInterrupt was raised, "" if none came out.

    Answers are, too: a request that a reset swept away, a refusal.
    """
    try:
        with suppress(LookupError, ConfigError, WhyError):
            call()
    except KeyboardInterrupt as error:
        *_, (frame, line) = walk_tb(error.__traceback__)
        return f"{frame.f_code.co_filename}:{line}"
    return ""


def assert_nothing_held() -> None:
    """Ctrl-C is Python's own again."""
    assert not interrupts._deferral._blocks and interrupts._deferral._held is None
    assert not interrupts._deferral.is_open and not interrupts._deferral.num_firm


def assert_intact(lab: Lab) -> None:
    """Lock free, timeline, checks and core agree, and nothing of what was interrupted is still marked as under way."""
    assert_nothing_held()
    lab.pause()
    lab.post(lambda: None).result(PATIENCE)  # what was posted before is over
    stepper = lab.session.stepper
    with stepper.reading():
        assert stepper._lock._depth == 1, "a turn was taken and not given back"
    assert not lab.session.runs.in_progress and lab.session.breakpoints._num_armed == 0 and not lab.hooks.is_emitting
    assert not lab.is_running
    assert lab.background_error is None
    if stepper.has_open_step:
        lab.step()
    listening = {heard for heard in chain(*lab.hooks.values()) if heard.listener.__module__ == breakpoints.__name__}
    assert {opened._subscription for opened in lab.session.breakpoints.open} == {
        heard for heard in listening if heard is not lab.session.breakpoints._rollbacks
    }, "a breakpoint is half added or half removed"
    core = lab.snapshot()
    assert lab.timeline is not None and difference(lab.timeline.state().snapshot(), core) is None
    assert lab.check() == [] and lab.session.watch is not None and lab.session.watch._judge is not None
    assert lab.session.watch._judge.requests is stepper.engine.requests, "the checks look at another engine"


def assert_goes_on(lab: Lab) -> None:
    """Check the next step: a fork, which takes all steps anew from the inputs, has the same state as the lab."""
    with lab.fork() as fork:
        assert difference(fork.snapshot(), lab.snapshot()) is None
        assert fork.step() == lab.step()
        assert difference(fork.snapshot(), lab.snapshot()) is None


def assert_pair_intact(both: Comparison) -> None:
    """Check that both sides are intact, that nothing runs, and that no lock is held."""
    assert_nothing_held()
    both.pause()
    both.post(lambda: None).result(PATIENCE)
    with both._pair.lock:
        assert both._pair.lock._depth == 1, "a turn was taken and not given back"
    assert not both.is_running and not both._runs._in_progress and both.background_error is None
    for lab in both._pair.labs:
        assert_intact(lab)


_of_others: set[threading.Thread] = set()


def note_threads_of_others() -> None:
    """Leave out of account, from now on, the threads that other tests have left."""
    _of_others.clear()
    _of_others.update(threading.enumerate())


def labengine_threads() -> set[str]:
    """Threads of ours that are alive, less those that other tests have left."""
    threads = [*{*threading.enumerate()} - _of_others]
    return {thread.name for thread in threads if thread.name.startswith("labengine")}


def assert_no_thread_is_left() -> None:
    """A view's thread may take a moment to send what is left."""
    wait_until(lambda: not labengine_threads(), lambda: f"the end of {labengine_threads()}")


def pressed_after(seconds: float, call: Callable[[], str]) -> str:
    """Call while another thread presses Ctrl-C once, so long after; the call's answer. The press has come by then."""
    pressed = threading.Event()
    answer = ""
    failure: Exception | None = None
    try:
        _thread.start_new_thread(_press, (seconds, pressed))
        try:
            answer = call()
        except Exception as error:  # raised only after the press, which would end the whole run of tests
            failure = error
        wait_until(pressed.is_set, "the press")
        for _ in range(NUM_NAPS * (not answer)):
            time.sleep(0.0005)
    except KeyboardInterrupt:
        wait_until(pressed.is_set, "the press")
    if failure is not None:
        raise failure
    return answer


def _press(seconds: float, pressed: threading.Event) -> None:
    time.sleep(seconds)
    press_ctrl_c_in_main_thread()
    pressed.set()
