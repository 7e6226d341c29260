"""A bell wakes one waiting thread, and no interrupt in the middle of set() leaves it stuck."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import count
from pathlib import Path

import labengine_widgets
from ctrl_c import press_ctrl_c
from disturbing import Countdown, SignalPoints
from interrupting import interrupted, python_takes_ctrl_c
from labengine_widgets.feed.worker import WakeFlag
from waiting import PATIENCE

ROOT = str(Path(labengine_widgets.__file__).parent)


def test_it_is_set_until_it_is_cleared() -> None:
    bell = WakeFlag()
    assert not bell.is_set() and not bell.wait(0.0)
    bell.set()
    bell.set()
    assert bell.is_set() and bell.wait(0.0) and bell.wait(10.0)
    bell.clear()
    assert not bell.is_set() and not bell.wait(0.01)


def test_who_waits_is_woken() -> None:
    bell, begun = WakeFlag(), time.monotonic()
    for _ in range(100):
        threading.Thread(target=bell.set).start()
        assert bell.wait(PATIENCE)
        bell.clear()
    assert time.monotonic() - begun < PATIENCE, "a wait that nobody ended takes all of it"


def test_an_interrupt_at_any_instruction_of_set_leaves_it_usable() -> None:
    with python_takes_ctrl_c():
        for number in count():
            bell = WakeFlag()
            countdown = Countdown(SignalPoints(), number, press_ctrl_c, root=ROOT)
            was_interrupted = countdown.run(partial(interrupted, bell.set))
            bell.clear()
            other = threading.Thread(target=bell.set, daemon=True)
            other.start()
            assert bell.wait(PATIENCE), countdown.acted_at
            if not was_interrupted:
                break
    assert number > 0, "nothing was interrupted"
