"""Two labs in lockstep: both get the same acts, neither is more than one act ahead; and follow-up acts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labengine.session.compare.sides import LiveSide

Act = Callable[[Any], Any]
"""One operation on a lab, such as add or a step. An interrupt leaves the lab as before or as after the act.

Any: a scenario's acts take a Lab, those of a comparison a LiveSide."""


@dataclass(slots=True)
class Side:
    """One lab's share of the current act. begun_at: its progress before the act; None until the act has begun."""

    lab: LiveSide
    is_done: bool = True
    begun_at: tuple[int, int] | None = None
    result: Any = None


class Lockstep:
    """Does acts to the left lab and then to the right one. An act that an interrupt cuts off is completed first.

    An error does not stop an act: it is raised once the other side has done the act, too.
    """

    def __init__(self, labs: Sequence[LiveSide]) -> None:
        self.sides = [Side(lab) for lab in labs]
        self._act: Act | None = None

    @property
    def is_behind(self) -> bool:
        """True after an interrupt, while one side has not done an act that the other has."""
        return not all(side.is_done for side in self.sides)

    @property
    def results(self) -> list[Any]:
        """The results of the last act, left and right."""
        return [side.result for side in self.sides]

    def do(self, act: Act) -> list[Any]:
        """Complete an interrupted act, then do this one to both sides; return its results."""
        if self.is_behind:
            self.catch_up()
        self._act = act
        for side in self.sides:
            side.is_done, side.begun_at, side.result = False, None, None
        return self.catch_up()

    def catch_up(self) -> list[Any]:
        """Complete the interrupted act; return its results."""
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
        """Leave an interrupted act incomplete."""
        for side in self.sides:
            side.is_done = True

    def _do(self, side: Side) -> None:
        """Do the act, unless the lab had done it before the interrupt came."""
        assert self._act is not None
        now = progress(side.lab)
        if side.begun_at is None or side.begun_at == now:
            side.begun_at = now
            side.result = self._act(side.lab)
        else:
            side.result = side.lab.session.stepper.engine.report


def progress(lab: LiveSide) -> tuple[int, int]:
    """Return the numbers of finished steps and of requests: an act adds to one of them."""
    stepper = lab.session.stepper
    return stepper.engine.step_number - stepper.is_inside_step, stepper.engine.num_added


class FollowUps:
    """A scenario's follow-up acts in order: done, undone by a rewind, or yet to do.

    begins_after: the step after which the first one is due.
    """

    def __init__(self, acts: Sequence[Act] = (), begins_after: int = 0) -> None:
        self._acts, self._begins_after = tuple(acts), begins_after
        self._done_after: list[int | None] = []
        """Per completed act, the step after which it was done; None while unknown."""
        self._num_done = 0

    def __bool__(self) -> bool:
        """True while acts are left to do."""
        return self._num_done < len(self._acts)

    @property
    def due_after(self) -> int:
        """The step after which the next act is due."""
        before = self._done_after[self._num_done - 1] if self._num_done else self._begins_after
        return 0 if before is None else before

    def take(self) -> Act:
        """Return the next act and count it as done, even if an interrupt cuts it off."""
        act = self._acts[self._num_done]
        self._done_after[self._num_done :] = [None]
        self._num_done += 1
        return act

    def note_other_act(self) -> None:
        """Forget the acts that a rewind undid, because another act has replaced them."""
        del self._done_after[self._num_done :]

    def note_completed(self, step: int) -> None:
        """Note that both sides have completed their acts after this step of the left side."""
        self._done_after = [step if after is None else after for after in self._done_after]

    def note_rewound(self, step: int) -> None:
        """Note a rewind to after this step: acts done by then stay done, later ones are to be done again."""
        self._num_done = sum(after is not None and after <= step for after in self._done_after)
