"""Doing the same to two labs: operation by operation, and never further apart than one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labengine.lab import Lab

Act = Callable[["Lab"], Any]
"""One thing to do to a lab: add, take a step. An interrupt leaves a lab as it was before it, or after it."""


@dataclass(slots=True)
class Side:
    """One lab's share of the operation at hand. begun_at: its progress when it began; None before."""

    lab: Lab
    is_done: bool = True
    begun_at: tuple[int, int] | None = None
    result: Any = None


class Lockstep:
    """Acts are done to the left lab and then to the right one; what an interrupt cuts off is done first next time.

    An error is an outcome: the other side still has its turn, and then it is raised.
    """

    def __init__(self, labs: Sequence[Lab]) -> None:
        self.sides = [Side(lab) for lab in labs]
        self._act: Act | None = None

    @property
    def is_behind(self) -> bool:
        """True after an interrupt, while one side has not done what the other has."""
        return not all(side.is_done for side in self.sides)

    @property
    def results(self) -> list[Any]:
        """What the last act came to, left and right."""
        return [side.result for side in self.sides]

    def do(self, act: Act) -> list[Any]:
        """Catch up if need be, then do this to both; what it came to on either side."""
        if self.is_behind:
            self.catch_up()
        self._act = act
        for side in self.sides:
            side.is_done, side.begun_at, side.result = False, None, None
        return self.catch_up()

    def catch_up(self) -> list[Any]:
        """Finish the act that was cut off."""
        error: Exception | None = None
        for number, side in enumerate(self.sides):
            if not side.is_done:
                try:
                    self._do(side)
                except Exception as failed:
                    failed.add_note(f"this was the {('left', 'right')[number]} side of the comparison")
                    error = error or failed
                side.is_done = True
        if error is not None:
            raise error
        return self.results

    def forget(self) -> None:
        """Leave undone what was cut off."""
        for side in self.sides:
            side.is_done = True

    def _do(self, side: Side) -> None:
        """Do the act, unless an interrupt came just after it was done."""
        assert self._act is not None
        now = progress(side.lab)
        if side.begun_at is None or side.begun_at == now:
            side.begun_at = now
            side.result = self._act(side.lab)
        else:
            side.result = side.lab._stepper.engine.report


def progress(lab: Lab) -> tuple[int, int]:
    """Finished steps and requests: an act adds to one of them."""
    engine, is_open = lab._stepper.engine, lab._stepper.phase not in (None, "update")
    return engine.step_number - is_open, engine.num_added
