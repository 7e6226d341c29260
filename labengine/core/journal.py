"""The undo journal: every mutation of the core notes how to take itself back, so that a step can fail cleanly."""

from __future__ import annotations

from typing import Any


class Journal(list[tuple[Any, ...]]):
    """Inverse operations in the order of the mutations, each (function, argument ...); rollback runs them newest first.

    The core records always; the engine decides where a step begins (`open`) and whether it ends in `commit` or
    `rollback`. An inverse takes back exactly one mutation, on the state right after it. It is a list so that recording
    costs as little as can be: every decode of every request pays it.
    """

    __slots__ = ()

    record = list.append
    """record((function, argument ...)): note how to take back the mutation that follows."""

    open = list.clear
    """Forget the past: a rollback will lead back to this moment."""

    commit = list.clear
    """Keep what was done."""

    def rollback(self) -> None:
        """Take back everything since `open`."""
        while self:
            inverse, *arguments = self.pop()
            inverse(*arguments)
