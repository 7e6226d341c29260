"""The undo journal: every mutation of the core records its inverse, so that a failed step leaves no trace."""

from __future__ import annotations

from typing import Any

from labengine.system.code_roles import Role, plays

plays(__name__, Role.NOT_UNDONE)


class Journal(list[tuple[Any, ...]]):
    """Inverse operations in the order of the mutations, each (function, argument ...); rollback runs them newest first.

    The core always records; the engine decides where a step begins (`open`) and whether it ends in `commit` or
    `rollback`. An inverse undoes exactly one mutation, on the state right after it. The journal is a list because every
    decode of every request pays for recording.

    An engine may begin the next step before this one has ended (see engine/ahead.py). The mutations of that next step
    are the journal's last section, which outlives the commit and can be rolled back alone.
    """

    __slots__ = ("_next", "failures")

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        """Exceptions raised by inverses in the newest rollback. If there are any, the state is not fully restored."""
        self._next: int | None = None
        """Index at which the next step's section begins; None if there is none."""

    record = list.append
    """record((function, argument ...)): note how to undo the mutation that follows."""

    def put(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """Set an entry of a dict whose values are never None, or remove it if the value is None."""
        self.append((_put, mapping, key, mapping.get(key)))
        _put(mapping, key, value)

    def commit(self) -> None:
        """Keep this step's mutations. Those of a next step begun ahead can still be rolled back."""
        if self._next is None:
            self.clear()
        else:
            del self[: self._next]
            self._next = 0

    open = commit
    """Begin a step: a later rollback returns to this moment, undoing anything begun ahead too."""

    def rollback(self) -> None:
        """Undo everything since `open`."""
        self._rollback_to(0)

    # -- the next step, begun ahead ------------------------------------------------------------------------------------

    def begin_next(self, start: int | None = None) -> None:
        """Assign the entries from here on (or from index `start` on) to the next step."""
        self._next = len(self) if start is None else start

    def enter_next(self) -> None:
        """Make the next step the current one, which ends in its own commit or rollback."""
        self._next = None

    def rollback_next(self) -> None:
        """Undo the next step's section, and nothing else."""
        if self._next is not None:
            self._rollback_to(self._next)

    def _rollback_to(self, start: int) -> None:
        """Run all inverses from the end back to `start`, even if one fails, as it may after a faulty part."""
        self.failures = []
        while len(self) > start:
            inverse, *arguments = self.pop()
            try:
                inverse(*arguments)
            except Exception as error:
                self.failures.append(error)
        self._next = None


def _put(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
