"""A generated test, run in a separate process with limits of time and memory, and its result."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from types import CodeType, FrameType
from typing import Any, Literal

from labengine.isolation.alone import called_alone
from labengine.isolation.board import NoAnswer
from labengine.isolation.endings import OF_THE_USER, interrupts_named, named, num_copies
from labengine.isolation.limits import EndlessOperationError, can_fork, operations_end, restart_clock

SECONDS = 60.0
"""Seconds after which a test is stopped, as it would be too slow for a test suite, too."""
FILE = "<a generated test>"

OnLine = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a test. lost: it never returns, or ends its process. said: why it failed. seen: its SEEN list."""

    ending: Literal["passed", "failed", "lost"]
    said: str = ""
    seen: Any = None


@dataclass(frozen=True, slots=True)
class Script:
    """A text that defines a test, and the test's name.

    prepare: changes the text's names before the test is called. known: names that the text may use.
    """

    text: str
    function: str
    prepare: Callable[[dict[str, Any]], object]
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makes_copies(self) -> bool:
        """True if the test copies its process for an act."""
        return "ending_of(" in self.text

    def played(self) -> Played:
        """Run the test as pytest would. Raises what the user does: a Ctrl-C.

        Each line may take as long as an operation of the finder. If processes cannot be copied, or if the test makes
        copies itself, it runs in this process.
        """
        if not can_fork() or self.makes_copies:
            return self._run(lambda number: None)
        answer = called_alone(lambda board: self._run(board.begin), monotonic() + SECONDS)
        if not isinstance(answer, NoAnswer):
            result: Played = answer
            return result
        return Played("failed" if answer.why == "failed" else "lost", answer.reason)

    def _run(self, on_line: OnLine) -> Played:
        names: dict[str, Any] = {"__name__": "made_test", "SEEN": [], **self.known}
        copies = num_copies()
        try:
            with warnings.catch_warnings(), interrupts_named():
                warnings.simplefilter("ignore")
                self._call(names, on_line)
        except OF_THE_USER:
            raise
        except EndlessOperationError as error:
            limits_itself = "ends_soon()" in self.text
            return Played("failed" if limits_itself else "lost", f"it does not return: {error}")
        except Exception as error:
            return Played("failed", _said(error, self.text))
        except BaseException as error:
            return Played("lost", f"it ends the process ({named(error)})")
        if num_copies() > copies and not self.makes_copies:
            return Played("lost", "it forks the process")
        return Played("passed", seen=names["SEEN"])

    def _call(self, names: dict[str, Any], on_line: OnLine) -> None:
        exec(compile(self.text, FILE, "exec", dont_inherit=True), names)
        self.prepare(names)
        test = names[self.function]
        with _limited(test.__code__, on_line):
            test()


def _said(error: Exception, text: str) -> str:
    """Return an exception and the line of the test that raised it."""
    line, traceback = "", error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == FILE:
            line = text.splitlines()[traceback.tb_lineno - 1].strip()
        traceback = traceback.tb_next
    return f"{named(error)}, in `{line}`" if line else named(error)


@contextmanager
def _limited(code: CodeType, on_line: OnLine) -> Iterator[None]:
    """Limit each line of a function, not the whole, since a long test need not hang. on_line: gets the line number."""
    number = 0

    def note(frame: FrameType, event: str, _: object) -> Any:
        nonlocal number
        if event == "line":
            number += 1
            on_line(number)
            restart_clock()
        return note

    before = sys.gettrace()
    with operations_end():
        restart_clock()
        sys.settrace(lambda frame, event, _: note if frame.f_code is code else None)
        try:
            yield
        finally:
            sys.settrace(before)
