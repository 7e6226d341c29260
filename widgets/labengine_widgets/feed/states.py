"""The states of a feed (its newest message, and the thread that works for it), with tables of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class Sent(Enum):
    """The kind of the newest message of state."""

    CAPTIONED = auto()
    """Events with captions: views play them, and have not saved them yet."""
    FOLLOWED = auto()
    """Events of a run, without captions: views show the newest. The last step gets captions when the lab pauses."""
    SAVED = auto()
    """All events; every view has saved them."""


class Sending(Enum):
    """Events that change `Sent`."""

    EVENTS_OF_RUN = auto()
    """Events without captions were sent."""
    EVENTS_BY_HAND = auto()
    """Events of a step that was taken by hand were sent, with captions."""
    EVENTS_BETWEEN_STEPS = auto()
    """Events that belong to no step were sent, with captions."""
    FULL_RECORDING = auto()
    """The views began anew with the newest events."""
    LAST_STEP = auto()
    """The captions of the last step were sent."""
    SAVING = auto()
    """Every view was asked to save what it shows."""


TRANSITIONS: Mapping[Sent, Mapping[Sending, Sent]] = {
    Sent.CAPTIONED: {Sending.EVENTS_OF_RUN: Sent.FOLLOWED, Sending.SAVING: Sent.SAVED},
    Sent.FOLLOWED: {Sending.EVENTS_BY_HAND: Sent.CAPTIONED, Sending.LAST_STEP: Sent.CAPTIONED},
    Sent.SAVED: {
        Sending.EVENTS_OF_RUN: Sent.FOLLOWED,
        Sending.EVENTS_BY_HAND: Sent.CAPTIONED,
        Sending.EVENTS_BETWEEN_STEPS: Sent.CAPTIONED,
        Sending.FULL_RECORDING: Sent.CAPTIONED,
    },
}
"""What follows a state; a pair that is missing leaves the state as it is."""


def sent_after(state: Sent, sending: Sending) -> Sent:
    """Return the state after views were sent a message or saved."""
    return TRANSITIONS[state].get(sending, state)


class Work(Enum):
    """The thread that does a feed's work."""

    STOPPED = auto()
    """Nowhere: no view is attached, or nothing is added to the recording any more."""
    ON_THREAD = auto()
    """On the feed's own thread."""
    ON_EVENT_LOOP = auto()
    """On the kernel's event loop: this Python has no threads, as JupyterLite's."""


class WorkSignal(Enum):
    """Events that change `Work`."""

    STARTED = auto()
    THREAD_REFUSED = auto()
    """This Python could not start the thread."""
    STOPPED = auto()


WORK_TRANSITIONS: Mapping[Work, Mapping[WorkSignal, Work]] = {
    Work.STOPPED: {WorkSignal.STARTED: Work.ON_THREAD},
    Work.ON_THREAD: {WorkSignal.THREAD_REFUSED: Work.ON_EVENT_LOOP, WorkSignal.STOPPED: Work.STOPPED},
    Work.ON_EVENT_LOOP: {WorkSignal.STOPPED: Work.STOPPED},
}
"""What follows a state; a pair that is missing leaves the state as it is."""


def work_after(state: Work, signal: WorkSignal) -> Work:
    """Return the state of the work after a signal."""
    return WORK_TRANSITIONS[state].get(signal, state)
