"""What the views of a feed have been sent, as named states with a table of transitions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class Sent(Enum):
    """What the newest message of state was."""

    CAPTIONED = auto()
    """Events with captions: a view plays them. Nothing is saved of them yet."""
    FOLLOWED = auto()
    """Events of a run, without captions: a view goes along. The last step is captioned when the lab rests."""
    SAVED = auto()
    """All there is; every view has saved it."""


class Sending(Enum):
    """What changes the state."""

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
    """Every view was told to save what it shows."""


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
"""What follows a state; whatever a row lacks leaves the state as it is."""


def sent_after(state: Sent, sending: Sending) -> Sent:
    """Return the state after something was sent or saved."""
    return TRANSITIONS[state].get(sending, state)
