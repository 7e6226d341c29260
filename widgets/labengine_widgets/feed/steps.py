"""The engine's newest step as a feed sees it: named states with a table of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from labengine import events as ev
from labengine_widgets.feed.states import state_after

HEARD = (
    ev.EngineStarted,
    ev.StepStarted,
    ev.StepEnded,
    ev.StepFailed,
    ev.StepRolledBack,
    ev.RequestAdded,
    ev.RequestFinished,
    ev.PrefixCacheReset,
    ev.BlocksLoaded,
    ev.LoadFailed,
    ev.ViolationFound,
)
"""Events that begin or end an operation. Those in between are read from the recording."""


class NewestStep(Enum):
    """The newest step of the engine, as far as the feed has seen it."""

    NONE = auto()
    """No step is open; the newest one, if the feed saw any, belonged to a run."""
    OPEN_IN_RUN = auto()
    """A step is open that belongs to a run, or whose beginning the recording lacks."""
    OPEN_BY_HAND = auto()
    """A step is open that the user took by hand: its events get captions."""
    ENDED_BY_HAND = auto()
    """No step is open; the user took the newest one by hand."""


class StepSignal(Enum):
    """Events that change `NewestStep`."""

    STARTED_IN_RUN = auto()
    STARTED_BY_HAND = auto()
    ENDED = auto()
    """The step ended or was rolled back."""
    RECORDING_BEGAN = auto()
    """The engine started, or the feed begins to follow it: earlier moments are no longer valid."""


STEP_TRANSITIONS: Mapping[NewestStep, Mapping[StepSignal, NewestStep]] = {
    NewestStep.NONE: {
        StepSignal.STARTED_IN_RUN: NewestStep.OPEN_IN_RUN,
        StepSignal.STARTED_BY_HAND: NewestStep.OPEN_BY_HAND,
    },
    NewestStep.OPEN_IN_RUN: {StepSignal.STARTED_BY_HAND: NewestStep.OPEN_BY_HAND, StepSignal.ENDED: NewestStep.NONE},
    NewestStep.OPEN_BY_HAND: {
        StepSignal.STARTED_IN_RUN: NewestStep.OPEN_IN_RUN,
        StepSignal.ENDED: NewestStep.ENDED_BY_HAND,
        StepSignal.RECORDING_BEGAN: NewestStep.OPEN_IN_RUN,
    },
    NewestStep.ENDED_BY_HAND: {
        StepSignal.STARTED_IN_RUN: NewestStep.OPEN_IN_RUN,
        StepSignal.STARTED_BY_HAND: NewestStep.OPEN_BY_HAND,
        StepSignal.RECORDING_BEGAN: NewestStep.NONE,
    },
}
"""The next state, by state and signal; see state_after for the pairs that are missing."""


class StepTracker:
    """The state of the newest step and the moment at which it began. One thread writes, any thread reads."""

    def __init__(self) -> None:
        self._now: tuple[NewestStep, int] = (
            NewestStep.NONE,
            0,
        )  # one attribute, so that a reader never sees half a change

    @property
    def state(self) -> NewestStep:
        """The newest step's state."""
        return self._now[0]

    @property
    def start_by_hand(self) -> int | None:
        """The moment before the newest step if that was taken by hand; None otherwise."""
        state, start = self._now
        return start if state in (NewestStep.OPEN_BY_HAND, NewestStep.ENDED_BY_HAND) else None

    def hear(self, event: ev.Event, start: int | None) -> None:
        """Note an event. start: the moment before it, if it belongs to a step taken by hand; None otherwise."""
        match event:
            case ev.StepStarted():
                self.signal(StepSignal.STARTED_IN_RUN if start is None else StepSignal.STARTED_BY_HAND, start)
            case ev.EngineStarted():
                self.signal(StepSignal.RECORDING_BEGAN)
            case ev.StepEnded() | ev.StepRolledBack():
                self.signal(StepSignal.ENDED)

    def signal(self, signal: StepSignal, start: int | None = None) -> None:
        """Change the state. start: the moment before a step that begins."""
        state, known = self._now
        self._now = state_after(STEP_TRANSITIONS, state, signal), known if start is None else start
