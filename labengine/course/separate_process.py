"""A reader's code in a copy of the kernel, with limits of time, memory and output: what it came to, or why it did not.

Where processes cannot be copied (a browser, macOS, Windows) it runs in the kernel: there only the processor time of
Python code is limited, and a part that sleeps, fills the memory or ends the process is not stopped.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from labengine.finder.child import Child, NoAnswerError, can_fork

COMPUTING_S = 20.0
"""Processor seconds of a check; the course's take a tenth of that."""
MAX_PRINTED = 20_000
"""Characters that are kept of what a reader's code prints."""


class EndedError(Exception):
    """Raised when a reader's code never comes back; its text says why."""


class _Printed(io.StringIO):
    """Keeps the beginning of what is written."""

    def __init__(self) -> None:
        super().__init__()
        self._room = MAX_PRINTED

    def write(self, text: str) -> int:
        """Write what there is room for, and say once that the rest is left out."""
        room, self._room = self._room, max(0, self._room - len(text))
        if room:
            super().write(text if len(text) <= room else f"{text[:room]}\n... the rest is left out\n")
        return len(text)


@dataclass(frozen=True)
class _Answer:
    """What a copy says: the result, or the exception in its place; and what was printed."""

    result: Any
    error: Exception | None
    printed: str


def called_separately(call: Callable[[], Any]) -> Any:
    """Return what a call returns in a copy of this process; what it prints is printed here.

    Raises EndedError for a call that does not come back, and what the call raises, or its name in a RuntimeError.
    """
    if not can_fork():
        return call()
    child = Child(_call, call, computing_s=COMPUTING_S)
    try:
        answer: _Answer = child.answer()
    except NoAnswerError as error:
        raise EndedError(str(error)) from None
    finally:
        child.end()
    if answer.printed:
        sys.stdout.write(answer.printed)
    if answer.error is not None:
        raise answer.error
    return answer.result


def _call(end: Connection, call: Callable[[], Any]) -> None:
    printed, result, error = _Printed(), None, None
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            result = call()
            pickle.dumps(result)
        except BaseException as raised:  # a reader's sys.exit, too
            result, error = None, _portable(raised)
    end.send(_Answer(result, error, printed.getvalue()))


def _portable(error: BaseException) -> Exception:
    """Return an exception as it can be sent; one that cannot, or is no Exception, as a RuntimeError with its name."""
    try:
        sent = pickle.loads(pickle.dumps(error))
        if isinstance(sent, Exception) and str(sent) == str(error):
            return sent
    except Exception:  # a class of a reader's, which may do anything
        return RuntimeError(type(error).__name__)
    return RuntimeError(f"{type(error).__name__}: {error}")
