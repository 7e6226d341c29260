"""What a scenario has still to show: single acts, some of them done, some to come, some taken back by a rewind."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.session.compare.lockstep import Act


class Later:
    """Acts in their order, with the step after which each was done: None while that is not known.

    begins_after: the step after which the first one is due.
    """

    def __init__(self, acts: Sequence[Act] = (), begins_after: int = 0) -> None:
        self._acts, self._begins_after = tuple(acts), begins_after
        self._done_after: list[int | None] = []
        self._num_done = 0

    def __bool__(self) -> bool:
        """True while there is something to come."""
        return self._num_done < len(self._acts)

    @property
    def due_after(self) -> int:
        """The step after which the next one is done."""
        before = self._done_after[self._num_done - 1] if self._num_done else self._begins_after
        return 0 if before is None else before

    def take(self) -> Act:
        """The next one, which is done from now on, be it after an interrupt."""
        act = self._acts[self._num_done]
        self._done_after[self._num_done :] = [None]
        self._num_done += 1
        return act

    def note_other(self) -> None:
        """Something else is done: there is no way forward any more to acts that were taken back."""
        del self._done_after[self._num_done :]

    def note_level(self, step: int) -> None:
        """Both sides have done what was to be done, and the left one stands after that step."""
        self._done_after = [step if after is None else after for after in self._done_after]

    def stand(self, step: int) -> None:
        """Both were rewound to a step, back or forward again: acts done by then are done, later ones are to come."""
        self._num_done = sum(after is not None and after <= step for after in self._done_after)
