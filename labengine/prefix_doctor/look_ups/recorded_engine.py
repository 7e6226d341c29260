"""The doctor's input: the events of one engine, with its names, salts and settings as far as known."""

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
    """The scheduler's settings, for repeating its requests.

    longest: length at which it ends each request; None without a limit. places: of requests in the order of arrival, if
    it differs from the order of their numbers.
    """

    config: EngineConfig
    parts: Parts
    salts: Mapping[int, ExtraKeys] = field(default_factory=dict)
    longest: int | None = None
    places: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedEngine:
    """One stretch of events without a gap.

    first: the state before the events. names: the engine's names of requests, if any. salts: the extra keys of all
    requests; None if the recording does not say. times: the start of each step, in seconds; empty if unknown.
    step_seconds: from each step's start to its end. repeatable: the settings for repeating the requests; None, with
    why_not_repeatable, if they cannot be repeated.
    """

    title: str
    first: Fold
    events: Sequence[ev.Event]
    token_text: TokenText | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    salts: Mapping[int, Hashable] | None = None
    times: Mapping[int, float] = field(default_factory=dict)
    step_seconds: Mapping[int, float] = field(default_factory=dict)
    is_async: bool = False
    """True if a step is scheduled before the output of the one before it arrives."""
    note: str = ""
    """A first sentence on it, for example that it was cut."""
    why_late: str = ""
    """The reason that it does not begin with an empty engine; empty if it does."""
    drops_last_block: bool = False
    """True if the last block of a hit is recomputed for a drafter that reads its hidden states (EAGLE, MTP)."""
    repeatable: Repeatable | None = None
    why_not_repeatable: str = "the recording does not contain the engine's settings"

    def name_of(self, request_id: int) -> str:
        """Return the engine's name of a request, or its letter."""
        return self.names.get(request_id) or request_name(request_id)

    @property
    def is_late(self) -> bool:
        """True if the engine had run before, so that content cached and evicted then is unknown."""
        return not (self.events and isinstance(self.events[0], ev.EngineStarted))


def kept_events(timeline: Timeline) -> tuple[Fold, list[ev.Event], int]:
    """Return the state at the oldest kept moment, the events since then, and the number of dropped events.

    Events of rolled-back steps are left out.
    """
    dropped, first, events = timeline.kept()
    return first, [events[i] for i in surviving(events)], dropped
