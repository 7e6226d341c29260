"""What the doctor reads: the events of one engine, and what is known besides them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from labengine import events as ev
from labengine.config import EngineConfig
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.record.fold import Fold, surviving
from labengine.record.timeline import Timeline
from labengine.record.wording import request_name

TokenText = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The scheduler's settings. longest: tokens at which it ends each request; None for no such limit. places: of
    requests in the order of arrival, where that is another one than their numbers'.
    """

    config: EngineConfig
    parts: Parts
    salts: Mapping[int, ExtraKeys] = field(default_factory=dict)
    longest: int | None = None
    places: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedEngine:
    """One stretch of events without a gap.

    first: the state before the events. names: the engine's own names of requests, where it has any. salts: what keeps
    requests apart besides their tokens, for all of them; None if the recording does not say. times: when a step began,
    in seconds; empty if unknown. repeatable: what it takes to run its requests again;
    None, and why_not_repeatable, where they cannot be.
    """

    title: str
    first: Fold
    events: Sequence[ev.Event]
    token_text: TokenText | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    salts: Mapping[int, Hashable] | None = None
    times: Mapping[int, float] = field(default_factory=dict)
    note: str = ""
    """What is to be said of it first: that it was cut."""
    why_late: str = ""
    """Why it does not begin with an empty engine; empty if it does."""
    drops_last_block: bool = False
    """True if the last block of a hit is computed again, for a drafter that reads its hidden states (EAGLE, MTP)."""
    repeatable: Repeatable | None = None
    why_not_repeatable: str = "the recording does not say how the engine was set"

    def name_of(self, request_id: int) -> str:
        """Return the engine's own name of a request, or its letter."""
        return self.names.get(request_id) or request_name(request_id)

    @property
    def is_late(self) -> bool:
        """True if the engine had run before: what was cached and evicted then is not known."""
        return not (self.events and isinstance(self.events[0], ev.EngineStarted))


def kept_events(timeline: Timeline) -> tuple[Fold, list[ev.Event], int]:
    """Return the state at the oldest moment kept, the events since that count, and how many were dropped.

    Events of steps that were rolled back do not count.
    """
    dropped, first, events = timeline.kept()
    return first, [events[i] for i in surviving(events)], dropped
