"""Ctrl-C, a real SIGINT, in calls of a driven lab: each is done completely, or not at all, and no process is left."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random

import pytest

import labengine
from ctrl_c import press_ctrl_c
from disturbing import Countdown, SignalPoints
from driven_waits import Waits, interrupted
from driving import difference
from hostile import NUM_OF_LAB, hostile_tests, processes
from interrupting import assert_goes_on, assert_nothing_held, python_takes_ctrl_c
from labengine.lab import Lab
from labengine.session.saved.no_test import NoTestError
from seeds import EVERY_SEED
from waiting import PATIENCE

FREE = "FakePool.free_blocks"

Act = Callable[[Lab], object]


def patch(lab: Lab) -> labengine.Patch:
    text = lab.session.model.described(FREE)["text"]  # type: ignore[attr-defined]
    return labengine.Patch(FREE, text.replace("append_n(to_tail)", "append_n(to_tail[1:])"))


def start_and_pause(lab: Lab) -> None:
    lab.start()
    lab.pause()


def take_test(lab: Lab) -> None:
    with lab.rerun(patch(lab)) as comparison, suppress(NoTestError):
        comparison.to_test()


def compare(lab: Lab) -> None:
    with lab.fork() as other, lab.fork() as another:
        both = other.compare(another)
        both.add(token_ids=range(5), max_tokens=2)
        both.run()


def drive(lab: Lab) -> None:
    labengine.drive("vllm", lab.settings.model.python, num_blocks=12, block_size=4).close()  # type: ignore[union-attr]


ACTS: dict[str, Act] = {
    "add": lambda lab: lab.add(token_ids=range(7), max_tokens=3),
    "step": lambda lab: lab.step(),
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
}


@pytest.fixture
def lab(stub: str) -> Iterator[Lab]:
    """An empty lab; Ctrl-C is Python's own."""
    with hostile_tests(), python_takes_ctrl_c(), labengine.drive("vllm", stub, num_blocks=12, block_size=4) as made:
        yield made
    gc.collect()
    assert [*processes()] == []


def set_up(lab: Lab) -> None:
    """Two requests that share a prefix, after two steps."""
    lab.reset()
    lab.add(token_ids=range(9), max_tokens=6)
    lab.add(token_ids=range(9), max_tokens=3)
    lab.step(2)


def assert_whole(lab: Lab) -> None:
    """Nothing is held or runs, no other process is left, and the next step is that of a lab never interrupted."""
    assert_nothing_held()
    lab.pause()
    assert not lab.is_running and lab.background_error is None and lab.crash is None
    assert lab.timeline is not None and difference(lab.timeline.state().snapshot(), lab.snapshot()) is None
    assert lab.check() == []
    assert len([*processes()]) <= NUM_OF_LAB
    assert_goes_on(lab)


def is_interrupted(lab: Lab, name: str, number: int, *, is_late: bool) -> bool:
    """Press Ctrl-C at a wait of an act; return False if it has fewer."""
    set_up(lab)
    waits = Waits(number, is_late=is_late)
    with waits.counted():
        error = interrupted(partial(ACTS[name], lab))
    assert_whole(lab)
    assert waits.is_over == (error is not None)
    return waits.is_over


@pytest.mark.parametrize("name", ACTS)
def test_at_waits_for_a_process(lab: Lab, name: str) -> None:
    """At the first, which sends or starts, before it; and at the second, which receives, after it."""
    assert is_interrupted(lab, name, 0, is_late=False)
    assert is_interrupted(lab, name, 1, is_late=True)


@pytest.mark.sweep
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ACTS)
def test_at_each_wait_for_a_process(lab: Lab, name: str, is_late: bool) -> None:
    number = 0
    while is_interrupted(lab, name, number, is_late=is_late):
        number += 1
    assert 1 < number < 100


@pytest.mark.parametrize("name", ACTS)
def test_at_some_instructions(lab: Lab, name: str) -> None:
    rng = Random(name)
    for _ in range(30 if EVERY_SEED else 1):
        set_up(lab)
        countdown = Countdown(SignalPoints(), int(2 ** (11 * rng.random())), press_ctrl_c)
        countdown.run(partial(interrupted, partial(ACTS[name], lab)))
        assert_whole(lab)


IN_A_GROUP = """
import os, signal, sys, threading
import labengine
from labengine.driven.process import EngineProcess

def press(*arguments):
    EngineProcess._wait_for = wait
    os.killpg(0, signal.SIGINT)
    wait(*arguments)

def drive():
    try:
        made.append(labengine.drive("vllm", sys.argv[1], num_blocks=12, block_size=4))
    finally:
        has_ended.set()

signal.signal(signal.SIGINT, signal.default_int_handler)
wait, EngineProcess._wait_for = EngineProcess._wait_for, press
made, has_ended = [], threading.Event()
threading.Thread(target=drive, daemon=True).start()
try:
    has_ended.wait(60)
except KeyboardInterrupt:
    has_ended.wait(60)
    made[0].add(token_ids=range(9), max_tokens=2)
    made[0].run()
    made[0].close()
    print("went on")
"""


def test_an_interrupt_of_a_notebooks_process_group_does_not_reach_an_engine_that_starts(stub: str) -> None:
    """As Jupyter sends it, while the engine is started by another thread, which no interrupt reaches."""
    command = [sys.executable, "-c", IN_A_GROUP, stub]
    ran = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert ran.stdout == "went on\n", ran.stderr


def test_a_lab_whose_process_another_labs_interrupt_has_ended_goes_on(lab: Lab) -> None:
    set_up(lab)
    with lab.fork() as fork, Waits(0).counted():
        assert interrupted(fork.step) is not None
        assert lab.step() == fork.step()
        assert lab.crash is None and difference(lab.snapshot(), fork.snapshot()) is None
