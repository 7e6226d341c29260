"""Output of a copy of this process: sent to the original process up to a limit, or dropped."""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable
from math import inf
from typing import NoReturn

from labengine.isolation.limits import EndlessOperationError, where_it_is

MAX_CHARACTERS = 1 << 16
"""Most characters that a call may print."""

Print = Callable[[str, str], object]
"""Takes "stdout" or "stderr", and a text."""


def redirect_output(send: Print | None, *, is_bounded: bool = True) -> None:
    """Pass this process's printed text to `send`, or drop it (None); code that prints endlessly gets an exception.

    is_bounded: False sets no limit. Output that bypasses sys.stdout and sys.stderr is dropped. Input raises EOFError.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    printed = _Printed(send, MAX_CHARACTERS if is_bounded else inf)
    sys.stdout, sys.stderr = _Stream("stdout", printed), _Stream("stderr", printed)
    builtins.input = _no_input


class _Printed:
    """The combined output of both streams."""

    def __init__(self, send: Print | None, num_left: float) -> None:
        self._send, self._num_left = send, num_left

    def write(self, name: str, text: str) -> None:
        """Send a text. Raises EndlessOperationError once the limit is reached."""
        if self._send is None:
            return
        if text and self._num_left > 0:
            self._send(name, text[: int(min(self._num_left, len(text)))])
        self._num_left -= len(text)
        if self._num_left < 0:
            too_much = f"has printed more than {MAX_CHARACTERS:,} characters"
            raise EndlessOperationError(where_it_is(sys._getframe(1), too_much))


class _Stream(io.TextIOBase):
    def __init__(self, name: str, printed: _Printed) -> None:
        self._name, self._printed = name, printed

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._printed.write(self._name, f"{text}")
        return len(text)


def _no_input(prompt: object = "") -> NoReturn:
    raise EOFError("a separate process has no input")
