"""Ctrl-C, a real signal, in any public method of a lab or a comparison: it was done whole, or not at all.

The sweep presses it 20,000 times, from a few bytecodes to a few milliseconds into each method.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from disturbing import Countdown, SignalPoints, press_ctrl_c
from interrupting import (
    Act,
    acts_of_a_comparison,
    acts_of_a_lab,
    another_thread_at_work,
    assert_goes_on,
    assert_pair_whole,
    assert_whole,
    busy_lab,
    busy_pair,
    hearing_ctrl_c,
    interrupted,
    labengine_threads,
    pressed_after,
    set_up,
)

NUM_POINTS = 4
"""Of each method, at which Ctrl-C is pressed in the small sample."""


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Python's own handler; no thread is left behind."""
    with hearing_ctrl_c():
        yield
    assert not labengine_threads()


def press_at_points(act: Act, on: Any, num_points: int, rng: Random) -> Iterator[bool]:
    """Have the act interrupted at as many of its instructions, evenly spread; after each, whether it was."""
    scout = Countdown(SignalPoints())
    scout.run(partial(interrupted, partial(act, on)))
    for i in range(num_points):
        on.reset()
        set_up(on)
        first, last = (scout.num_passed * k // num_points for k in (i, i + 1))
        countdown = Countdown(SignalPoints(), rng.randrange(first, max(first + 1, last)), press_ctrl_c)
        yield countdown.run(partial(interrupted, partial(act, on)))


def test_a_lab_at_some_instructions_of_every_method(tmp_path: Path) -> None:
    rng, outcomes = Random(0), []
    for act in acts_of_a_lab(tmp_path).values():
        with busy_lab() as lab, another_thread_at_work(lab):
            for was_interrupted in press_at_points(act, lab, NUM_POINTS, rng):
                assert_whole(lab)
                outcomes.append(was_interrupted)
            assert_goes_on(lab)
    assert outcomes.count(True) > 0.8 * len(outcomes)


def test_a_comparison_at_some_instructions_of_every_method() -> None:
    rng, outcomes = Random(1), []
    for act in acts_of_a_comparison().values():
        with busy_pair() as both, another_thread_at_work(both.left, both.right):
            for was_interrupted in press_at_points(act, both, NUM_POINTS, rng):
                assert_pair_whole(both)
                outcomes.append(was_interrupted)
    assert outcomes.count(True) > 0.8 * len(outcomes)


# -- the sweep ---------------------------------------------------------------------------------------------------------


def press_after_times(acts: dict[str, Act], on: Any, number: int, rng: Random, longest: float) -> Iterator[bool]:
    """Have methods interrupted by another thread, from nothing to so many seconds after they began."""
    for _ in range(number):
        if rng.random() < 0.05 or on.snapshot().step > 30:
            on.reset()
            set_up(on)
        act = rng.choice([*acts.values()])
        yield pressed_after(longest * rng.random() ** 2, partial(interrupted, partial(act, on)))


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_fifteen_thousand_interrupts_of_a_simulated_lab(tmp_path: Path) -> None:
    rng, num_interrupted = Random(2), 0
    with busy_lab(num_blocks=32) as lab, another_thread_at_work(lab):
        for number, was in enumerate(press_after_times(acts_of_a_lab(tmp_path), lab, 15_000, rng, 0.01)):
            num_interrupted += was
            assert_whole(lab)
            if number % 50 == 0:
                assert_goes_on(lab)
    assert num_interrupted > 5_000


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_four_thousand_interrupts_of_a_comparison() -> None:
    rng, num_interrupted = Random(3), 0
    with busy_pair(num_blocks=32) as both, another_thread_at_work(both.left, both.right):
        for was in press_after_times(acts_of_a_comparison(), both, 4_000, rng, 0.02):
            num_interrupted += was
            assert_pair_whole(both)
    assert num_interrupted > 1_000


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_a_thousand_interrupts_of_a_real_model(tmp_path: Path) -> None:
    rng, num_interrupted = Random(4), 0
    with busy_lab(model="smollm2", num_blocks=32) as lab, another_thread_at_work(lab):
        for number, was in enumerate(press_after_times(acts_of_a_lab(tmp_path), lab, 1_000, rng, 0.3)):
            num_interrupted += was
            assert_whole(lab)
            if number % 50 == 0:
                assert_goes_on(lab)
    assert num_interrupted > 300
