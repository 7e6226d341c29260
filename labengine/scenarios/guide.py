"""Stops of a scenario's story: a sentence, and the event that it is about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labengine.events import Event


@dataclass(frozen=True, slots=True)
class GuideStop:
    """A sentence, and the first event of a kind that passes the test, on either side of a comparison.

    A story's stops are reached in order: each considers only events after the one before.
    """

    sentence: str
    kind: type[Event]
    test: Callable[[Any], bool] = lambda event: True
    question: str = ""
    """A prediction to ask for here, on the number of used blocks at the step's end; continuing answers it."""
    about_slots: bool = False
    """The sentence is about slots: the story's block tables are shown slot by slot."""

    def matches(self, event: Event) -> bool:
        """Return whether the sentence belongs to this event."""
        return isinstance(event, self.kind) and self.test(event)
