"""A reader's code in a process of its own: what it comes to there, or a sentence on how it ended.

Where a process cannot be copied (macOS, Windows, a browser's Python) the code runs in this one. Bounded there are loops
in Python code, and on macOS code that sleeps. Not bounded are calls into C that never come back, memory and output; and
what ends the process ends the reader's kernel, unless it is an exception such as SystemExit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar, cast

from labengine.config import ConfigError
from labengine.course.check_result import CheckResult, TextTable, blank, wrong
from labengine.isolation.limits import MEMORY_BYTES, EndlessOperationError, can_fork, ends_soon

T = TypeVar("T")

CLOCK_S = 60.0
"""Seconds of the clock that a check may take: it is over in one or two."""
MEMORY = f"{MEMORY_BYTES >> 20} MiB"
"""Memory that a reader's code may take, in words."""

_PLAIN = (int, float, bool, str, type(None))

_note_run: list[Callable[[str], object]] = []
"""In a process of its own: notes that another run of the reader's code begins."""


class UnansweredError(Exception):
    """Raised for code that has not come back. result: what the reader is told."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(result.text)
        self.result = result


def is_plain(answer: object) -> bool:
    """Return True for an answer that has no code of its own: a number, a text, nothing, or a selection."""
    return type(answer) in _PLAIN or type(answer).__module__.startswith(("labengine.", "labengine_widgets."))


def begin_run(text: str) -> None:
    """Note that a run of the reader's code begins. text: says which."""
    for note in _note_run:
        note(text)


def answered_alone(call: Callable[[], T]) -> T:
    """Return what a call returns in a process of its own, with what it prints printed here.

    What it changes is changed there alone. Raises ConfigError as the call does, and UnansweredError where it does not
    come back.
    """
    if not can_fork():
        return call()
    from labengine.isolation.alone import called_alone
    from labengine.isolation.board import Board, NoAnswer

    def run(board: Board) -> tuple[T | None, str, str]:
        _note_run.append(lambda text: board.begin(board.begun + 1, text))
        try:
            return call(), "", ""
        except ConfigError as error:
            return None, exact(str(error)), ""
        except EndlessOperationError as error:
            return None, "", f"it is in {error}"

    deadline = monotonic() + CLOCK_S
    found: Any = None
    for output in (_print, None):
        found = called_alone(run, deadline, output)
        if not isinstance(found, NoAnswer) or found.why != "asleep":
            break  # else once more: a lock that a thread of this process held stays locked in its copy
    if isinstance(found, NoAnswer):
        raise UnansweredError(_sentence(found.why, found.reason, found.run))
    value, refusal, place = found
    if place:
        raise UnansweredError(wrong(f"Your code does not come back: {place}."))
    if refusal:
        raise ConfigError(refusal)
    return cast(T, value)


def read_alone(call: Callable[[], T]) -> T:
    """Return what a call returns that reads a value of the reader's, as `answered_alone`. It is a single run."""

    def read() -> T:
        with ends_soon():
            return call()

    return answered_alone(read)


def exact_result(result: CheckResult) -> CheckResult:
    """Return a result whose texts are all exact."""
    rows = None if result.table is None else [[*map(exact, row)] for row in result.table.rows]
    pictures = tuple((exact(title), exact(svg)) for title, svg in result.pictures)
    table = None if rows is None else TextTable(rows)
    return CheckResult(result.state, tuple(map(exact, result.lines)), table, pictures)


def exact(text: str) -> str:
    """Return a text that is no reader's own class of texts: such a one would bring its code along."""
    return "".join((text,))


def _print(name: str, text: str) -> None:
    getattr(sys, name).write(text)


def _sentence(why: str, reason: str, run: str) -> CheckResult:
    where = f" (in {run})" if run else ""
    if why == "killed":
        return blank(f"The check was killed from outside{where}, perhaps for want of memory. Run it once more.")
    if why == "memory":
        return wrong(f"Your code takes more than {MEMORY} of memory{where}.")
    if why == "late":
        return wrong(f"Your code had not come back after {CLOCK_S:g} seconds{where}.")
    if why == "failed":
        return wrong(f"This cannot be checked: a value that your code returns leads to {reason}.")
    return wrong(f"Your code does not come back{where}: {reason}.")
