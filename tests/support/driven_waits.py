"""Ctrl-C while a lab waits for a driven engine's process, or for a script of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ctrl_c import press_ctrl_c
from labengine.driven.played_script import _Running
from labengine.driven.process import EngineProcess


class Waits:
    """Presses Ctrl-C before, or after, the n-th wait of a call. number: counted from 0."""

    def __init__(self, number: int, *, is_late: bool = False) -> None:
        self.num_left, self._is_late = number, is_late

    @property
    def is_over(self) -> bool:
        """True once it has pressed."""
        return self.num_left < 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the waits in the block."""
        with pytest.MonkeyPatch.context() as patching:
            for kind, name in ((EngineProcess, "_wait_for"), (_Running, "played")):
                wait = getattr(kind, name)
                patching.setattr(kind, name, lambda *arguments, wait=wait: self._wait(wait, *arguments))
            yield

    def _wait(self, wait: Callable[..., Any], *arguments: Any) -> Any:
        self.num_left -= 1
        is_due = self.num_left == -1
        if is_due and not self._is_late:
            press_ctrl_c()
        done = wait(*arguments)
        if is_due and self._is_late:
            press_ctrl_c()
        return done


def interrupted(call: Callable[[], object]) -> KeyboardInterrupt | None:
    """Call; return the interrupt with its traceback, which a notebook keeps, too."""
    try:
        call()
    except KeyboardInterrupt as error:
        return error
    return None
