"""The log of a sandbox's engine: its operations, and the states before its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from labengine.engine.engine import Engine
from labengine.finder.operations import BreakOff, BreakOffAt, EngineOperation, TakeStep
from labengine.record.snapshot import Snapshot

Past = tuple[Sequence[EngineOperation], Snapshot]
"""Operations, and the state that they led to."""


class OperationLog:
    """Records an engine's operations. keeps_states: also the state before each step, to which a rewind must return."""

    def __init__(self, engine: Engine, *, keeps_states: bool) -> None:
        self._engine = engine
        self._keeps_states = keeps_states
        self._done: list[tuple[int, EngineOperation]] = []
        """Each operation with the number of steps finished after it."""
        self._starts: dict[int, Snapshot] = {}

    @property
    def operations(self) -> list[EngineOperation]:
        """All operations done."""
        return [operation for _, operation in self._done]

    def __len__(self) -> int:
        return len(self._done)

    @contextmanager
    def noting(self, operation: EngineOperation) -> Iterator[None]:
        """Record the operation done inside the block, unless the block raises."""
        engine = self._engine
        if self._keeps_states and isinstance(operation, (TakeStep, BreakOff, BreakOffAt)):
            self._starts[engine.num_finished_steps] = engine.snapshot()
        yield
        self._done.append((engine.num_finished_steps, operation))

    def undo_to(self, length: int) -> None:
        """Forget the newest operations."""
        del self._done[length:]

    def until(self, step: int) -> Past:
        """Return the operations that a rewind to a step repeats, and the state in which the next step began."""
        return [operation for num_steps, operation in self._done if num_steps <= step], self._starts[step]
