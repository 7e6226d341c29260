"""The ground of a comparison: its two sides, what is done to both, and how far they have come together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.session.background import Background, LabClosedError
from labengine.session.compare.comparable import Recorded, generations
from labengine.session.compare.given import first_stranger, requests_of_lab
from labengine.session.compare.later import Later
from labengine.session.compare.lockstep import Act, Lockstep, progress
from labengine.session.turns import FairLock
from labengine.timeline import Timeline

if TYPE_CHECKING:
    from labengine.lab import Lab
    from labengine_widgets.compare import CompareView

Ends = tuple[int, int]
"""A moment of the left recording and one of the right."""

ON_THEIR_OWN = "comparison.left and comparison.right are labs of their own: "


class Paired:
    """Two sides, and the acts that are done to both, left first."""

    left: Recorded
    right: Recorded
    names: tuple[str, str]
    is_live: bool
    """False for opened traces."""

    def _pair(self, later: Later, step: Callable[[], bool]) -> None:
        """Begin, with both sides standing at the same step. step: what the background does again and again."""
        self._lockstep = Lockstep([*self.sides] if self.is_live else [])  # type: ignore[list-item]
        self._later = later
        self._view: CompareView | None = None
        self._guard = Lock()
        self._is_closed = False
        self._freedom = ExitStack()
        self._background = Background(step, self._freedom.close)
        self._num_free_runs = 0
        self._num_known_requests = 0
        self._drift = self._steps_apart()
        self._level = self._rest = self._newest()
        self._generations = generations(self.timelines)
        self._ahead_before = 0
        self._turn = FairLock()

    @property
    def sides(self) -> tuple[Recorded, Recorded]:
        """Left and right."""
        return self.left, self.right

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """What was recorded on either side."""
        return self.left.timeline, self.right.timeline

    @property
    def level(self) -> Ends:
        """The moments up to which both sides have done the same; an interrupted side may be further."""
        return self._level if self._generations == generations(self.timelines) else self._newest()

    @property
    def rest(self) -> Ends:
        """The moments at which both last stood between two steps, neither ahead of the other."""
        return self._rest if self._generations == generations(self.timelines) else self._newest()

    def _labs(self) -> tuple[Lab, ...]:
        """Both, to do something with them. LabClosedError once closed, ConfigError for recordings."""
        if self._is_closed:
            raise LabClosedError
        if not self.is_live:
            raise ConfigError("these are recordings, to look at and not to step: compare two labs instead")
        return tuple(side.lab for side in self._lockstep.sides)

    def _newest(self) -> Ends:
        return self.timelines[0].end, self.timelines[1].end

    # -- doing the same ------------------------------------------------------------------------------------------------

    def _do(self, act: Act) -> list[Any]:
        """One act, to both. What an interrupt has cut off is made good first. ConfigError unless both stand level."""
        with self._turn:
            self._make_good()
            self._require_level()
            self._later.note_other()
            return self._done(act)

    def _done(self, act: Act) -> list[Any]:
        self._ahead_before = self._ahead
        try:
            return self._lockstep.do(act)
        finally:
            self._note_drift()
            self._note_level()

    def _make_good(self) -> None:
        self._labs()
        if self._lockstep.is_behind:
            self._catch_up()

    def _catch_up(self) -> list[Any]:
        try:
            return self._lockstep.catch_up()
        finally:
            self._note_drift()
            self._note_level()

    def _require_level(self) -> None:
        """ConfigError, before anything happens, when somebody has led one side another way, or further, by itself."""
        self._require_same_requests()
        if self._ahead:
            behind, number = ("right", self._ahead) if self._ahead > 0 else ("left", -self._ahead)
            raise ConfigError(
                f"{self._where()}: one of them was stepped, rewound or reset by itself. comparison.step() brings the "
                f"{behind} one along ({number} step{'s' * (number > 1)}), comparison.rewind(step) takes both back"
            )

    def _require_same_requests(self) -> None:
        labs = self._labs()
        counts = [progress(lab)[1] for lab in labs]
        first = min(self._num_known_requests, *counts) if self._are_as_known else 0
        left, right = (requests_of_lab(lab, first) for lab in labs)
        stranger = first_stranger(left, right, first)
        if stranger or counts[0] != counts[1]:
            told = stranger or f"the left one has seen {counts[0]} of them, the right one {counts[1]}"
            raise ConfigError(
                f"the two sides have not seen the same requests any more: {told}. {ON_THEIR_OWN}what is added to both "
                f"is added with comparison.add(...). comparison.reset() begins anew with both"
            )
        self._num_known_requests = counts[0]

    @property
    def _are_as_known(self) -> bool:
        """False once a side has begun anew: what was known of its requests is about others."""
        return self._generations == generations(self.timelines)

    def _where(self) -> str:
        steps = [progress(lab)[0] for lab in self._labs()]
        return f"the left side stands after step {steps[0]}, the right one after step {steps[1]}"

    # -- how far they are ----------------------------------------------------------------------------------------------

    def _note_drift(self) -> None:
        """A side that found nothing to do has not fallen behind; one that was brought along has caught up."""
        if not self._lockstep.is_behind and not self._ahead_before:
            self._drift = self._steps_apart()

    def _steps_apart(self) -> int:
        """How many more steps the left side has taken: one that has nothing to do takes none."""
        if not self.is_live:
            return 0
        left, right = (progress(side.lab)[0] for side in self._lockstep.sides)
        return left - right

    @property
    def _ahead(self) -> int:
        """Steps by which the left side (below 0 the right one) is ahead because somebody stepped it by itself."""
        return self._steps_apart() - self._drift

    def _note_level(self) -> None:
        if not self._lockstep.is_behind and self.is_live:
            self._later.note_level(progress(self._lockstep.sides[0].lab)[0])
        if not self._lockstep.is_behind and not self._ahead:
            self._level, self._generations = self._newest(), generations(self.timelines)
            if all(side.lab._stepper.phase in (None, "update") for side in self._lockstep.sides):
                self._rest = self._level
        if self._view is not None:
            self._view.has_grown()

    def _begin_level(self) -> None:
        """Both have begun anew, or have been brought to the same place: nothing of before counts."""
        self._num_known_requests = 0
        self._ahead_before, self._drift = 0, self._steps_apart() if self._is_one_idle else 0
        self._note_level()

    @property
    def _is_one_idle(self) -> bool:
        """Whether the side with fewer steps has fewer because it has nothing to do."""
        apart = self._steps_apart()
        fewer = self._lockstep.sides[0 if apart < 0 else 1].lab
        return bool(apart) and fewer._stepper.engine.scheduler.is_idle
