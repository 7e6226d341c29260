"""Guided sentences: each is said after the event it belongs to, in the order of the story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labengine.events import Event


@dataclass(frozen=True, slots=True)
class Stop:
    """A sentence, and the first event of a kind that passes the test, on either side of a comparison.

    A story's stops are reached one after the other: each looks only at what comes after the one before.
    """

    sentence: str
    kind: type[Event]
    test: Callable[[Any], bool] = lambda event: True
    question: str = ""
    """A prediction to ask for here, on the blocks in use when the step is over: answered by going on."""

    def matches(self, event: Event) -> bool:
        """Return whether the sentence belongs to this event."""
        return isinstance(event, self.kind) and self.test(event)


def sentences(guide: tuple[Stop, ...]) -> tuple[str, ...]:
    """Return the story as text."""
    return tuple(stop.sentence for stop in guide)
