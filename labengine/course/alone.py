"""Run a reader's code in a separate process: return its result, or a sentence on how it ended.

Where a process cannot be copied (macOS, Windows, Python in a browser) the code runs in this one. There, loops in Python
code are limited, and on macOS also code that sleeps. Calls into C that never return, memory and output are not limited.
Code that ends the process ends the reader's kernel, unless it raises an exception such as SystemExit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar, cast

from labengine.config import ConfigError
from labengine.course.check_result import CheckResult, TextTable, blank, wrong
from labengine.isolation.limits import EndlessOperationError, can_fork, ends_soon
from labengine.isolation.memory_limit import MEMORY_BYTES

T = TypeVar("T")

CLOCK_S = 60.0
"""Wall-clock limit of a check, in seconds; most take one or two."""
MEMORY = f"{MEMORY_BYTES >> 20} MiB"
"""Memory that a reader's code may use, as text."""

_PLAIN = (int, float, bool, str, type(None))

_note_run: list[Callable[[str], object]] = []
"""In a separate process: called when another run of the reader's code begins."""


class UnansweredError(Exception):
    """Raised for code that has not returned. result: the result shown to the reader."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(result.text)
        self.result = result


def is_plain(answer: object) -> bool:
    """Return True for an answer that brings no code: a number, a text, None, or a selection."""
    return type(answer) in _PLAIN or type(answer).__module__.startswith(("labengine.", "labengine_widgets."))


def begin_run(text: str) -> None:
    """Note that a run of the reader's code begins. text: describes the run."""
    for note in _note_run:
        note(text)


def answered_alone(call: Callable[[], T]) -> T:
    """Make a call in a separate process and return its result; its output is printed here.

    Its changes stay in that process. Raises ConfigError as the call does, and UnansweredError if it does not return.
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
            return None, "", f"{error}"

    deadline = monotonic() + CLOCK_S
    found: Any = None
    for output in (_print, None):
        found = called_alone(run, deadline, output)
        if not isinstance(found, NoAnswer) or found.why != "asleep":
            break  # else try again: a lock held by a thread of this process stays locked in its copy
    if isinstance(found, NoAnswer):
        raise UnansweredError(_sentence(found.why, found.reason, found.run))
    value, refusal, place = found
    if place:
        raise UnansweredError(wrong(f"Your code does not return: {place}."))
    if refusal:
        raise ConfigError(refusal)
    return cast(T, value)


def read_alone(call: Callable[[], T]) -> T:
    """Call a function that reads one of the reader's values, as `answered_alone` does. It is a single run."""

    def read() -> T:
        with ends_soon():
            return call()

    return answered_alone(read)


def exact_result(result: CheckResult) -> CheckResult:
    """Return the result with all its texts as plain str."""
    rows = None if result.table is None else [[*map(exact, row)] for row in result.table.rows]
    pictures = tuple((exact(title), exact(svg)) for title, svg in result.pictures)
    table = None if rows is None else TextTable(rows)
    return CheckResult(result.state, tuple(map(exact, result.lines)), table, pictures)


def exact(text: str) -> str:
    """Return the text as a plain str: a reader's subclass of str would bring its code along."""
    return "".join((text,))


def _print(name: str, text: str) -> None:
    getattr(sys, name).write(text)


def _sentence(why: str, reason: str, run: str) -> CheckResult:
    where = f" (in {run})" if run else ""
    if why == "killed":
        return blank(f"The check was killed from outside{where}, perhaps because memory ran out. Run it again.")
    if why == "memory":
        return wrong(f"Your code uses more than {MEMORY} of memory{where}.")
    if why == "late":
        return wrong(f"Your code had not returned after {CLOCK_S:g} seconds{where}.")
    if why == "failed":
        return wrong(f"This cannot be checked: a value that your code returns raises {reason}.")
    return wrong(f"Your code does not return{where}: {reason}.")
