"""The states of a feed's newest message, with their table of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TypeVar


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
"""The next state, by state and event; see state_after for the pairs that are missing."""


_State = TypeVar("_State")
_Signal = TypeVar("_Signal")


def state_after(transitions: Mapping[_State, Mapping[_Signal, _State]], state: _State, signal: _Signal) -> _State:
    """Return the state that a table of transitions has after a signal: the same one if the table lacks the pair."""
    return transitions[state].get(signal, state)
