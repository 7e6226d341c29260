"""The undo journal: every mutation of the core notes how to take itself back, so that a step can fail cleanly."""

from __future__ import annotations

from typing import Any


class Journal(list[tuple[Any, ...]]):
    """Inverse operations in the order of the mutations, each (function, argument ...); rollback runs them newest first.

    The core records always; the engine decides where a step begins (`open`) and whether it ends in `commit` or
    `rollback`. An inverse takes back exactly one mutation, on the state right after it. It is a list so that recording
    costs as little as can be: every decode of every request pays it.

    An engine may begin the next step before this one has ended (see engine/ahead.py): what the next step has done so
    far is the journal's last section, which outlives the commit and can be taken back alone.
    """

    __slots__ = ("_next", "failures")

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        """What the inverses of the newest rollback have raised: the state is then not what it was."""
        self._next: int | None = None
        """Where the next step's section begins; None without one."""

    record = list.append
    """record((function, argument ...)): note how to take back the mutation that follows."""

    def commit(self) -> None:
        """Keep what was done. What was begun ahead can still be taken back."""
        if self._next is None:
            self.clear()
        else:
            del self[: self._next]
            self._next = 0

    open = commit
    """Forget the past: a rollback will lead back to this moment, and before what was begun ahead."""

    def rollback(self) -> None:
        """Take back everything since `open`."""
        self._rollback_to(0)

    # -- the next step, begun ahead ------------------------------------------------------------------------------------

    def begin_next(self, start: int | None = None) -> None:
        """What is recorded from here on (or was, from entry `start` on) belongs to the next step."""
        self._next = len(self) if start is None else start

    def enter_next(self) -> None:
        """The next step is the one under way now: it ends by its own commit or rollback."""
        self._next = None

    def rollback_next(self) -> None:
        """Take back what was begun ahead, and nothing else."""
        if self._next is not None:
            self._rollback_to(self._next)

    def _rollback_to(self, start: int) -> None:
        """Also where an inverse fails, as it may behind a part that corrupts: the others are run all the same."""
        self.failures = []
        while len(self) > start:
            inverse, *arguments = self.pop()
            try:
                inverse(*arguments)
            except Exception as error:
                self.failures.append(error)
        self._next = None
