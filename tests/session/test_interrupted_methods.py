"""Ctrl-C, a real signal, in any public method of a lab or a comparison: the call is done completely, or not at all.

The sweep presses it 20,000 times, from a few bytecodes to a few milliseconds into each method.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from re import findall
from typing import Any

import pytest

from ctrl_c import press_ctrl_c
from disturbing import Countdown, SignalPoints
from interrupting import (
    Act,
    acts_of_a_comparison,
    acts_of_a_lab,
    another_thread_at_work,
    assert_goes_on,
    assert_intact,
    assert_no_thread_is_left,
    assert_pair_intact,
    busy_lab,
    busy_pair,
    interrupted,
    pressed_after,
    public_names,
    python_takes_ctrl_c,
    set_up,
)
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison

NUM_POINTS = 3
"""How often Ctrl-C is pressed in each method in the small sample."""


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Install Python's own handler; check that no thread is left behind."""
    with python_takes_ctrl_c():
        yield
    assert_no_thread_is_left()


def pressed_at_instruction(number: int, act: Act, on: Any) -> tuple[str, int]:
    """Press Ctrl-C at an instruction of an act; where, "" if no interrupt came of it, and how many came before."""
    countdown = Countdown(SignalPoints(), number, press_ctrl_c)
    raised_at = countdown.run(partial(interrupted, partial(act, on)))
    return countdown.acted_at if raised_at else "", countdown.num_passed


def press_at_instructions(act: Act, on: Any, rng: Random) -> Iterator[bool]:
    """Have the act interrupted at some of its instructions, early ones and late ones; after each, whether it was."""
    for _ in range(NUM_POINTS):
        on.reset()
        set_up(on)
        place, _ = pressed_at_instruction(int(2 ** (10 * rng.random())) - 1, act, on)
        yield place != ""


@pytest.mark.parametrize(("kind", "acts_of"), [(Lab, acts_of_a_lab), (Comparison, acts_of_a_comparison)])
def test_every_public_method_has_its_act(kind: type, acts_of: Callable[[Path], dict[str, Act]], tmp_path: Path) -> None:
    covered = {name for words in acts_of(tmp_path) for name in findall(r"\w+", words)}
    methods, _ = public_names(kind)
    assert methods - covered == set(), "interrupting.py has no case for these"


def test_a_lab_at_some_instructions_of_every_method(tmp_path: Path) -> None:
    rng, outcomes = Random(0), []
    with busy_lab() as lab, another_thread_at_work(lab):
        for act in acts_of_a_lab(tmp_path).values():
            for was_interrupted in press_at_instructions(act, lab, rng):
                assert_intact(lab)
                outcomes.append(was_interrupted)
            assert_goes_on(lab)
    assert outcomes.count(True) > 0.6 * len(outcomes)


def test_a_comparison_at_some_instructions_of_every_method(tmp_path: Path) -> None:
    rng, outcomes = Random(1), []
    with busy_pair() as both, another_thread_at_work(both.left, both.right):
        for act in acts_of_a_comparison(tmp_path).values():
            for was_interrupted in press_at_instructions(act, both, rng):
                assert_pair_intact(both)
                outcomes.append(was_interrupted)
    assert outcomes.count(True) > 0.6 * len(outcomes)


def test_a_breakpoint_at_every_instruction_of_its_making_and_its_end() -> None:
    def make_and_end(lab: Lab) -> None:
        lab.break_on("BlockFreed").close()

    with busy_lab() as lab:
        for number in range(1000):
            place, _ = pressed_at_instruction(number, make_and_end, lab)
            assert_intact(lab)
            for opened in lab.breakpoints:
                opened.close()
            if not place:
                break
    assert 20 < number < 999, "it was not interrupted everywhere"


_FIRST_SHOW = """
import signal, sys
from labengine.lab import Lab

class PressOnImport:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1] and self in sys.meta_path:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
lab = Lab("simulated", num_blocks=8, block_size=4)
sys.meta_path.insert(0, PressOnImport())
try:
    lab.show()
except KeyboardInterrupt:
    lab.show()
    lab.close()
    print("shown")
"""


@pytest.mark.parametrize("module", ["labengine_widgets.view", "importlib.metadata", "anywidget"])
def test_ctrl_c_while_a_view_is_imported_does_not_break_it_for_good(module: str) -> None:
    ran = subprocess.run([sys.executable, "-c", _FIRST_SHOW, module], capture_output=True, text=True, check=True)
    assert ran.stdout == "shown\n", ran.stderr


# -- the sweep ---------------------------------------------------------------------------------------------------------


class Sweep:
    """Presses Ctrl-C in one act after another, by turns at an instruction and after a time."""

    def __init__(self, acts: dict[str, Act], on: Any, seed: int) -> None:
        self.acts, self.on, self.rng = acts, on, Random(seed)
        self.places: Counter[str] = Counter()
        """File and line where Ctrl-C was pressed (after a time: where the interrupt was raised), and how often."""
        self._reach = dict.fromkeys(acts, 64)
        self._seconds = {name: self._measured(act) for name, act in acts.items()}

    def run(self, number: int) -> Iterator[int]:
        """Interrupt so many acts; after each attempt, how many were by then."""
        while (so_far := self.places.total()) < number:
            if self.rng.random() < 0.05 or _num_steps(self.on) > 30:
                self.on.reset()
                set_up(self.on)
            name = self.rng.choice([*self.acts])
            place = self._after_time(name) if self.rng.random() < 0.3 else self._at_instruction(name)
            self.places.update([place] if place else [])
            yield so_far

    def _at_instruction(self, name: str) -> str:
        number = self.rng.randrange(self._reach[name])
        place, num_passed = pressed_at_instruction(number, self.acts[name], self.on)
        self._reach[name] = max(self._reach[name], 2 * number) if place else max(4, num_passed)
        return place

    def _after_time(self, name: str) -> str:
        seconds = self._seconds[name] * self.rng.random()
        return pressed_after(seconds, partial(interrupted, partial(self.acts[name], self.on)))

    def _measured(self, act: Act) -> float:
        """Seconds that the act takes when it is not the first: nothing has to be imported any more."""
        for _ in range(2):
            self.on.reset()
            set_up(self.on)
            began = time.monotonic()
            interrupted(partial(act, self.on))
        return time.monotonic() - began


def _num_steps(on: Any) -> int:
    lab = on.left if isinstance(on, Comparison) else on
    return int(lab.num_known_steps)


@pytest.fixture
def threads_switch_quickly() -> Iterator[None]:
    """The pressing thread must not wait longer than most acts take."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def sweep_of_a_lab(lab: Lab, folder: Path, number: int, seed: int) -> Sweep:
    with lab, another_thread_at_work(lab):
        sweep = Sweep(acts_of_a_lab(folder), lab, seed)
        for so_far in sweep.run(number):
            assert_intact(lab)
            if so_far % 50 == 0:
                assert_goes_on(lab)
    return sweep


@pytest.mark.sweep
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("threads_switch_quickly")
def test_fifteen_thousand_interrupts_of_a_simulated_lab(tmp_path: Path) -> None:
    sweep = sweep_of_a_lab(busy_lab(num_blocks=32), tmp_path, 15_000, seed=2)
    assert len(sweep.places) > 1_000, "they struck in few places"


@pytest.mark.sweep
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("threads_switch_quickly")
def test_four_thousand_interrupts_of_a_comparison(tmp_path: Path) -> None:
    with busy_pair(num_blocks=32) as both, another_thread_at_work(both.left, both.right):
        sweep = Sweep(acts_of_a_comparison(tmp_path), both, seed=3)
        for _ in sweep.run(4_000):
            assert_pair_intact(both)
    assert len(sweep.places) > 500, "they struck in few places"


@pytest.mark.sweep
@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("threads_switch_quickly")
def test_a_thousand_interrupts_of_a_real_model(tmp_path: Path) -> None:
    sweep = sweep_of_a_lab(busy_lab(model="smollm2", num_blocks=32), tmp_path, 1_000, seed=4)
    assert len(sweep.places) > 300, "they struck in few places"
