"""The two sides of a comparison, one lock for both, and the acts that both have done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labengine.config import ConfigError
from labengine.engine.interrupts import interrupts_deferred
from labengine.record.timeline import Timeline
from labengine.session.compare.lockstep import Act, FollowUps, Lockstep, progress
from labengine.session.compare.sides import (
    LiveSide,
    first_unequal,
    requests_of,
    session_of,
    timeline_of,
)
from labengine.session.fair_lock import FairLock
from labengine.session.looking import Looking
from labengine.session.stepper import LabClosedError

Ends = tuple[int, int]
"""A moment of the left recording and one of the right."""


@dataclass(frozen=True, slots=True)
class CutOffRewind:
    """A rewind of both sides that was cut off. left_at: where the sides were then. again: repeats the rewind."""

    step: int
    left_at: tuple[object, ...]
    again: Callable[[], object]


class SidePair:
    """Two sides that start after the same step, and acts on both, left first.

    on_progress: called after each act.
    """

    def __init__(self, left: Looking, right: Looking, follow_ups: FollowUps, on_progress: Callable[[], object]) -> None:
        self.left, self.right = left, right
        self.timelines: tuple[Timeline, Timeline] = timeline_of(left), timeline_of(right)
        self.is_live = session_of(left) is not None and session_of(right) is not None
        """False where a side is an opened trace."""
        self.is_closed = self.is_going_back = False
        self.lock = FairLock()
        self.lockstep = Lockstep(_live(left, right) if self.is_live else ())
        self.follow_ups = follow_ups
        self.cut_off: CutOffRewind | None = None
        """A rewind cut off by an interrupt or an error: the next act repeats it first."""
        self._on_progress = on_progress
        self._num_known_requests = 0
        """Number of leading requests known to be equal on both sides."""
        self._drift = self._lead
        """Extra steps of the left side that the right one could not take for lack of work."""
        self._ahead_before = 0
        self._aligned_at = self._last_boundary = self.newest
        self._generations = self.generations

    @property
    def sides(self) -> tuple[Looking, Looking]:
        """Left and right."""
        return self.left, self.right

    @property
    def labs(self) -> tuple[LiveSide, ...]:
        """Both labs, to change them. LabClosedError once closed, ConfigError for recordings."""
        if self.is_closed:
            raise LabClosedError
        if not self.is_live:
            raise ConfigError("recordings cannot be stepped: compare two labs instead")
        return tuple(side.lab for side in self.lockstep.sides)

    @property
    def newest(self) -> Ends:
        """The newest moment of each recording."""
        return self.timelines[0].end, self.timelines[1].end

    @property
    def generations(self) -> tuple[int, int]:
        """The numbers of the recordings: a reset or rewind begins a new one."""
        return self.timelines[0].generation, self.timelines[1].generation

    @property
    def aligned_at(self) -> Ends:
        """The last moments (left, right) at which both sides had done the same acts; one side may be further now."""
        return self._aligned_at if self._generations == self.generations else self.newest

    @property
    def last_boundary(self) -> Ends:
        """The last moments (left, right) at which both sides were between two steps, neither ahead of the other."""
        return self._last_boundary if self._generations == self.generations else self.newest

    # -- acts ----------------------------------------------------------------------------------------------------------

    def do(self, act: Act) -> list[Any]:
        """Do one act to both; return its results. An interrupted act is completed first.

        ConfigError, before anything changes, unless both sides are aligned.
        """
        with self.lock:
            self.complete()
            self.require_aligned()
            self.follow_ups.note_other_act()
            return self.do_aligned(act)

    def do_aligned(self, act: Act) -> list[Any]:
        """Do one act to both sides, which are aligned before it or after it. The caller holds the lock."""
        self._ahead_before = self.ahead
        try:
            return self.lockstep.do(act)
        finally:
            self._note_progress()

    def complete(self) -> list[Any] | None:
        """Complete an interrupted act or rewind; return the act's results, None without one."""
        labs = self.labs
        if self.cut_off is not None and self.cut_off.left_at == self.where:
            self.cut_off.again()
        if not labs or not self.lockstep.is_behind:
            return None
        try:
            return self.lockstep.catch_up()
        finally:
            self._note_progress()

    def require_aligned(self) -> None:
        """Raise ConfigError if one side alone was stepped or has had other inputs. Nothing changes."""
        self.require_same_requests()
        if self.ahead:
            behind, number = ("right", self.ahead) if self.ahead > 0 else ("left", -self.ahead)
            steps = [progress(lab)[0] for lab in self.labs]
            raise ConfigError(
                f"the left side is after step {steps[0]}, the right side after step {steps[1]}: one of them was "
                f"stepped, rewound or reset separately. {self._cut_off_advice}comparison.step() moves the {behind} one "
                f"forward ({number} step{'s' * (number > 1)}); comparison.rewind(step) takes both back"
            )

    @property
    def where(self) -> tuple[object, ...]:
        """The progress and the recording of each side."""
        return (*map(progress, self.labs), *self.generations)

    @property
    def _cut_off_advice(self) -> str:
        if self.cut_off is None:
            return ""
        step = self.cut_off.step
        return f"comparison.rewind({step}) was interrupted: repeat it to realign both without losing a request. "

    def require_same_requests(self) -> None:
        """Raise ConfigError if the sides have had different requests."""
        counts = [progress(lab)[1] for lab in self.labs]
        is_known = self._generations == self.generations
        first = min(self._num_known_requests, *counts) if is_known else 0
        left, right = (requests_of(lab.session, first) for lab in self.labs)
        unequal = first_unequal(left, right, first)
        if unequal or counts[0] != counts[1]:
            what = unequal or f"the left side has had {counts[0]}, the right side {counts[1]}"
            raise ConfigError(
                f"the two sides no longer have the same requests: {what}. {self._cut_off_advice}"
                "Use comparison.add(...) to add a request to both, or comparison.reset() to start both over"
            )
        self._num_known_requests = counts[0]

    # -- going back ----------------------------------------------------------------------------------------------------

    @contextmanager
    def going_back(self) -> Iterator[None]:
        """Mark both sides as going back; tell the views at the end, also after an error or an interrupt."""
        try:
            self.is_going_back = True
            yield
        finally:
            with interrupts_deferred():
                self.is_going_back = False
                self._on_progress()

    # -- progress ------------------------------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """Steps that the left side (negative: the right side) is ahead because it alone was stepped."""
        return self._lead - self._drift

    @property
    def _lead(self) -> int:
        """Finished steps of the left side minus those of the right side, which takes none without work."""
        if not self.is_live:
            return 0
        left, right = (progress(side.lab)[0] for side in self.lockstep.sides)
        return left - right

    def begin_aligned(self, *, as_they_are: bool = False) -> None:
        """Note that both sides were reset or moved to the same step: forget earlier differences.

        as_they_are: count the sides as aligned even if they are after different steps.
        """
        self._num_known_requests = 0
        lead = self._lead
        shorter = self.lockstep.sides[0 if lead < 0 else 1].lab.session.stepper.engine
        self._ahead_before, self._drift = 0, lead if as_they_are or shorter.scheduler.is_idle else 0
        self._note_aligned()

    def _note_progress(self) -> None:
        """Note an act's progress: a side without work is not behind; a side that did the act has caught up."""
        if not self.lockstep.is_behind and not self._ahead_before:
            self._drift = self._lead
        self._note_aligned()

    def _note_aligned(self) -> None:
        if not self.lockstep.is_behind and self.is_live:
            self.follow_ups.note_completed(progress(self.lockstep.sides[0].lab)[0])
        if not self.lockstep.is_behind and not self.ahead:
            self._aligned_at, self._generations = self.newest, self.generations
            if not any(side.lab.session.stepper.is_inside_step for side in self.lockstep.sides):
                self._last_boundary = self._aligned_at
        self._on_progress()


def _live(left: Any, right: Any) -> tuple[LiveSide, LiveSide]:
    """Return both sides as live ones. Any: both have a session, so they are labs."""
    return left, right
