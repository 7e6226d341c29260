"""Ctrl-C, a real SIGINT, in calls of a driven lab: each is done completely, or not at all, and no process is left."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import labengine
from ctrl_c import press_ctrl_c
from disturbing import Countdown, SignalPoints
from driving import difference
from hostile import TESTS, VARIABLE, processes
from interrupting import assert_goes_on, assert_nothing_held, python_takes_ctrl_c
from labengine.driven.played_script import _Running
from labengine.driven.process import EngineProcess
from labengine.events import StepEnded
from labengine.lab import Lab
from labengine.session.saved.no_test import NoTestError
from seeds import first
from waiting import PATIENCE

NUM_POINTS, NUM_SWEEP_POINTS = 3, 60
"""Instructions of each act at which it is interrupted."""

FREE = "FakePool.free_blocks"

Act = Callable[[Lab], object]


def patch(lab: Lab) -> labengine.Patch:
    text = lab.session.model.described(FREE)["text"]  # type: ignore[attr-defined]
    return labengine.Patch(FREE, text.replace("append_n(to_tail)", "append_n(to_tail[1:])"))


def start_and_pause(lab: Lab) -> None:
    lab.start()
    lab.pause()


def take_test(lab: Lab) -> None:
    with lab.rerun(patch(lab)) as comparison:
        try:
            comparison.to_test()
        except NoTestError:
            pass


def compare(lab: Lab) -> None:
    with lab.fork() as other, lab.fork() as another:
        both = other.compare(another)
        both.add(token_ids=range(5), max_tokens=2)
        both.run()


def drive(lab: Lab) -> None:
    settings = {"num_blocks": 12, "block_size": 4}
    labengine.drive("vllm", lab.settings.model.python, **settings).close()  # type: ignore[union-attr]


ACTS: dict[str, Act] = {
    "add": lambda lab: lab.add(token_ids=range(7), max_tokens=3),
    "step": lambda lab: lab.step(),
    "steps": lambda lab: lab.step(3),
    "run": lambda lab: lab.run(),
    "start": start_and_pause,
    "post": lambda lab: lab.post(lab.step).result(PATIENCE),
    "abort": lambda lab: lab.abort(0),
    "reset": lambda lab: lab.reset(),
    "rewind": lambda lab: lab.rewind(1),
    "fork": lambda lab: lab.fork().close(),
    "rerun": lambda lab: lab.rerun(patch(lab)).close(),
    "to_test": take_test,
    "compare": compare,
    "drive": drive,
    "why": lambda lab: lab.why(request=0),
}


@pytest.fixture(autouse=True)
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(VARIABLE, TESTS)
    with python_takes_ctrl_c():
        yield


@pytest.fixture
def lab(stub: str) -> Iterator[Lab]:
    with labengine.drive("vllm", stub, num_blocks=12, block_size=4) as made:
        yield made
    gc.collect()
    assert [*processes()] == []


def set_up(lab: Lab) -> None:
    """Two requests that share a prefix, after two steps."""
    lab.reset()
    lab.add(token_ids=range(9), max_tokens=6)
    lab.add(token_ids=range(9), max_tokens=3)
    lab.step(2)


def interrupted(call: Callable[[], object]) -> KeyboardInterrupt | None:
    """Call; return the interrupt with its traceback, which a notebook keeps, too."""
    try:
        call()
    except KeyboardInterrupt as error:
        return error
    return None


def assert_whole(lab: Lab) -> None:
    """Nothing is held or runs, no other process is left, and the next step is that of a lab never interrupted."""
    assert_nothing_held()
    lab.pause()
    assert not lab.is_running and lab.background_error is None and lab.crash is None
    assert lab.timeline is not None and difference(lab.timeline.state().snapshot(), lab.snapshot()) is None
    assert lab.check() == []
    assert len([*processes()]) <= 1
    assert_goes_on(lab)


class Waits:
    """Presses Ctrl-C before or after the n-th wait for a process in the main thread's call."""

    def __init__(self, number: int, *, is_late: bool) -> None:
        self.num_left, self._is_late = number, is_late

    def __call__(self, wait: Callable[..., Any], *arguments: Any) -> Any:
        self.num_left -= 1
        is_due = self.num_left == -1
        if is_due and not self._is_late:
            press_ctrl_c()
        done = wait(*arguments)
        if is_due and self._is_late:
            press_ctrl_c()
        return done

    def around(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count the waits for answers, and for scripts."""
        for kind, name in ((EngineProcess, "_wait_for"), (_Running, "played")):
            wait = getattr(kind, name)
            monkeypatch.setattr(kind, name, lambda *arguments, wait=wait: self(wait, *arguments))


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ACTS)
def test_at_each_wait_for_a_process(lab: Lab, name: str, is_late: bool) -> None:
    for number in range(100):
        set_up(lab)
        with pytest.MonkeyPatch.context() as patching:
            waits = Waits(number, is_late=is_late)
            waits.around(patching)
            error = interrupted(partial(ACTS[name], lab))
        assert_whole(lab)
        if waits.num_left >= 0:
            break
        assert error is not None
    assert number < 99 and (number or name == "why")
