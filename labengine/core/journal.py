"""The undo journal: every mutation of the core notes how to take itself back, so that a step can fail cleanly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Journal:
    """Inverse operations in the order of the mutations; rollback runs them newest first.

    The core records always; the engine decides where a step begins (`open`) and whether it ends in `commit` or
    `rollback`. An inverse takes back exactly one mutation, on the state right after it.
    """

    __slots__ = ("_inverses",)

    def __init__(self) -> None:
        self._inverses: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def record(self, inverse: Callable[..., object], *arguments: object) -> None:
        """Note how to take back the mutation that follows."""
        self._inverses.append((inverse, arguments))

    def open(self) -> None:
        """Forget the past: a rollback will lead back to this moment."""
        self._inverses.clear()

    commit = open

    def rollback(self) -> None:
        """Take back everything since `open`."""
        while self._inverses:
            inverse, arguments = self._inverses.pop()
            inverse(*arguments)
