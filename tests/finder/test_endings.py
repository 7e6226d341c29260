"""A part that ends its process, or raises what is no Exception, is a finding, however the search runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from finder.test_find import TINY
from labengine.core.block_pool import BlockPool
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.finder.report import SearchReport


class OddError(BaseException):
    """No Exception."""


def close_everything() -> None:
    """Close all files, the connection to the search too, and go on."""
    os.closerange(3, 256)


def wait_for_an_alarm() -> None:
    """Have an alarm end this process."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(1)
    signal.pause()


def fork_and_exit() -> None:
    """Go on in a copy, and end the original."""
    if os.fork():
        os._exit(0)


def leave_a_thread() -> None:
    """Leave a thread that no process waits out, and end."""
    threading.Thread(target=threading.Event().wait).start()
    sys.exit(0)


def raising(error: BaseException) -> Callable[[], None]:
    """What raises this."""

    def act() -> None:
        raise error

    return act


RAISES: dict[str, Callable[[], object]] = {
    "sys.exit(0)": sys.exit,
    "sys.exit(text)": lambda: sys.exit("bye"),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "GeneratorExit": raising(GeneratorExit()),
    "no Exception": raising(OddError()),
    "a thread is left": leave_a_thread,
}
"""Acts that end an operation, in any process."""

ENDS: dict[str, Callable[[], object]] = {
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(3)": lambda: os._exit(3),
    "os.abort()": os.abort,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hung up": lambda: os.kill(os.getpid(), signal.SIGHUP),
    "alarm": wait_for_an_alarm,
    "closes its files": close_everything,
    "a copy goes on": fork_and_exit,
}
"""Acts that end the process which does them."""


def part(act: Callable[[], object]) -> type[BlockPool]:
    """A part that does this at a hit."""

    class Ends(BlockPool):
        def touch(self, block_ids: Sequence[int]) -> None:
            if block_ids:
                act()
            super().touch(block_ids)

    return Ends


def searched(cls: type, **settings: Any) -> Counterexample | SearchReport:
    settings = {"scopes": TINY, "kinds": GRAVE, "workers": 2, "seconds": 600, "show_progress": False, **settings}
    return find(cls, **settings)


@pytest.mark.parametrize("name", RAISES)
def test_what_a_part_raises_is_a_finding(name: str) -> None:
    one = searched(part(RAISES[name]))
    assert isinstance(one, Counterexample) and one.kind == "raises"
    assert ("which ends the process" in one.message) is (one.rule == "SystemExit")


@pytest.mark.parametrize("name", [name for name in RAISES if name != "a thread is left"])
@pytest.mark.parametrize("workers", ["here", "threads"])
def test_so_it_is_in_this_process_and_in_threads(name: str, workers: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        one = searched(part(RAISES[name]), workers=threads if workers == "threads" else 0)
    assert isinstance(one, Counterexample) and one.kind == "raises"


@pytest.mark.parametrize("name", ["os._exit(0)", "killed", "closes its files"])
def test_a_process_that_a_part_ends_is_a_finding(name: str) -> None:
    one = searched(part(ENDS[name]))
    assert isinstance(one, Counterexample) and (one.kind, one.rule) == ("liveness", "endless")
    assert "ends the process" in one.message or "killed" in one.message


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ENDS)
def test_however_it_is_ended(name: str, seed: int) -> None:
    one = searched(part(ENDS[name]), seed=seed)
    assert isinstance(one, Counterexample) and (one.kind, one.rule) == ("liveness", "endless")


def test_a_part_that_ends_its_process_while_it_is_made_is_no_all_clear() -> None:
    class Never(BlockPool):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            if os.getpid() != here:
                os._exit(0)

    here = os.getpid()
    with pytest.raises(RuntimeError, match="end by themselves \\(exit code 0\\)"):
        searched(Never)


def test_ctrl_c_of_the_user_cancels_the_search_in_this_process() -> None:
    pressed: list[int] = []

    def press() -> None:
        if not pressed:
            pressed.append(1)
            signal.raise_signal(signal.SIGINT)

    report = searched(part(press), workers=0)
    assert isinstance(report, SearchReport) and pressed
