"""A recording up to the moment of a question, read backwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import index
from typing import Any, Protocol, TypeVar

from labengine import events as ev
from labengine.config import is_single_int
from labengine.record.fold import Fold
from labengine.record.gap import Gap
from labengine_widgets.why.answer import Link, WhyError
from labengine_widgets.why.locks import Numbered, lock_method
from labengine_widgets.words.phrases import phrase

E = TypeVar("E", bound=ev.Event)

_CHUNK = 4096

Seams = Mapping[str, Mapping[str, Any]]
"""The method that decides each kind of event, as labengine.session.reasons returns it."""


class Recording(Protocol):
    """The common interface of a Timeline and an opened trace."""

    @property
    def num_dropped(self) -> int:
        """The oldest moment kept."""

    @property
    def end(self) -> int:
        """The newest moment."""

    @property
    def gap_before(self) -> Gap | None:
        """The gap after which it begins, if any."""

    def events(self, start: int | None = None, stop: int | None = None) -> Sequence[ev.Event]:
        """The events between two moments."""

    def state(self, moment: int | None = None) -> Fold:
        """The state at a moment."""

    def of_kind(self, kind: type[ev.ViolationFound]) -> list[ev.ViolationFound]:
        """The events of one kind."""


class Past:
    """A recording up to a moment, without the steps that were rolled back by then.

    Raises WhyError for a moment that is not recorded.
    """

    def __init__(
        self,
        timeline: Recording,
        moment: int | None = None,
        seams: Seams | None = None,
        found: list[ev.ViolationFound] | None = None,
    ) -> None:
        """found: all violations in the recording, if the caller has them already."""
        self.timeline = timeline
        self._found = found
        self.first = timeline.num_dropped
        self.moment = timeline.end if moment is None else moment
        if not is_single_int(self.moment) or not self.first <= self.moment <= timeline.end:
            raise WhyError(f"no moment {moment!r}: the recording spans {self.first} to {timeline.end}")
        self.moment = index(self.moment)
        self.seams: Seams = seams or {}

    @cached_property
    def begin(self) -> Fold:
        """The state where the recording begins."""
        return self.timeline.state(self.first)

    @property
    def is_complete(self) -> bool:
        """True for a recording that begins with its engine, so that no event is missing."""
        return self.first == 0 and not self.begin.ref_counts

    @property
    def gap(self) -> Gap | None:
        """The gap after which the recording begins; None for none, and once the events after it were dropped."""
        return self.timeline.gap_before if self.first == 0 else None

    @property
    def before(self) -> str:
        """Phrase for the time before the recording."""
        gap = self.gap
        if gap is not None:
            return f"before step {gap.last_step + 1:,}, in a gap or earlier ({gap})"
        return f"before the recording began (event {self.first})"

    def start(self, sentence: str) -> Link:
        """The recording's beginning, as the first link of a chain. After a gap it names the gap."""
        gap = self.gap
        return Link(self.first, None, sentence if gap is None else f"{sentence} Before that, {gap}.")

    @cached_property
    def found(self) -> list[ev.ViolationFound]:
        """Violations at events before the moment, also those found later."""
        known = self._found if self._found is not None else self.timeline.of_kind(ev.ViolationFound)
        return [one for one in known if one.first_event is None or one.first_event < self.moment]

    @cached_property
    def state(self) -> Fold:
        """The state at the question's moment."""
        return self.timeline.state(self.moment)

    def at(self, moment: int) -> Fold:
        """The state at an earlier (or later) moment."""
        return self.state if moment == self.moment else self.timeline.state(moment)

    def event(self, number: int) -> ev.Event:
        """Return the event of that number."""
        return self.timeline.events(number, number + 1)[0]

    def backwards(self, before: int | None = None) -> Iterator[Numbered]:
        """Yield events before a moment (by default the question's), newest first, without those rolled back."""
        rolled_back: int | None = None
        for number, event in self.everything_backwards(self.moment if before is None else before):
            if rolled_back is not None:
                if type(event) is ev.StepStarted and event.step == rolled_back:
                    rolled_back = None
                continue
            if type(event) is ev.StepRolledBack and self._has_start(number, event.step):
                rolled_back = event.step
                continue
            yield number, event

    def last(self, *kinds: type[E], before: int | None = None, **fields: Any) -> tuple[int, E] | None:
        """Return the newest event of these kinds with these fields before a moment, and its number; None without one.

        Events that were rolled back are left out.
        """
        for number, event in self.backwards(before):
            if isinstance(event, kinds) and all(getattr(event, name) == value for name, value in fields.items()):
                return number, event
        return None

    def links(self, *numbers: int | None) -> tuple[Link, ...]:
        """Return events as links, in this order; those that are None are left out."""
        return tuple(self.link(number) for number in numbers if number is not None)

    def everything_backwards(self, stop: int) -> Iterator[Numbered]:
        """Yield events before a moment, newest first, with rolled-back steps and their StepRolledBack."""
        while stop > self.first:
            start = max(self.first, stop - _CHUNK)
            yield from reversed(list(enumerate(self.timeline.events(start, stop), start)))
            stop = start

    def forwards(self, start: int, stop: int | None = None) -> Iterator[Numbered]:
        """Yield events from one moment to another (by default the end), oldest first, rolled-back ones too."""
        stop = self.timeline.end if stop is None else stop
        for low in range(start, stop, _CHUNK):
            yield from enumerate(self.timeline.events(low, min(low + _CHUNK, stop)), low)

    def surviving(self, start: int, stop: int | None = None) -> list[Numbered]:
        """Return events between two moments, oldest first, without those rolled back by then."""
        found = []
        for number, event in self.backwards(stop):
            if number < start:
                break
            found.append((number, event))
        return found[::-1]

    def link(self, number: int, sentence: str | None = None, change: int = 0) -> Link:
        """Return an event as one link of a chain. sentence: by default, the event's own."""
        event = self.event(number)
        seam, reason = self.seam_at(number)
        text = self._override_named(event) + (sentence or phrase(event))
        place = str((ev.entry_of(self.seams, event) or {}).get("place", ""))
        return Link(number + 1, number, text, seam, reason, change, place=place)

    def _override_named(self, event: ev.Event) -> str:
        """Return the override that decided an event, as the beginning of its sentence; "" for a method of labengine.

        The sentence says what labengine's own methods do; the override may do something else. Only a method that
        emits the event reports it.
        """
        seam = ev.entry_of(self.seams, event)
        if seam is None or not seam.get("is_custom"):
            return ""
        name = self.seam(event)[0]
        return f"{name} reports: " if seam.get("is_emitter") else f"decided by {name}: "

    def seam_at(self, number: int) -> tuple[str | None, str]:
        """Return the method that decided the event of that number, and its reason, as `seam` does."""
        event = self.event(number)
        return self.seam(event, lock_method(event, self.everything_backwards(number), self.forwards(number + 1)))

    def seam(self, event: ev.Event, method: str = "") -> tuple[str | None, str]:
        """Return the method that decided an event, and its reason; (None, "") where no seams are known.

        method: the seam that decided, if it may be another than usual.
        """
        if isinstance(event, ev.DecisionDiffered):
            return event.method, f"It replaces {event.replaces}, which was also called in the same state."
        seam = ev.entry_of(self.seams, event)
        if seam is None or (self._is_about_states(event) and not seam.get("is_custom")):
            return None, ""
        if method and not seam.get("is_custom"):
            seam = next((one for one in (seam, *seam.get("methods", ())) if one["seam"] == method), seam)
        return f"{seam['class']}.{str(seam['seam']).rpartition('.')[2]}", str(seam["reason"])

    @property
    def taken_by(self) -> str | None:
        """The override that takes blocks from the free queue, not always from its head; None without one.

        The prefix tree's pool evicts before it takes, from the head like any other.
        """
        seam = self.seams.get("BlockAllocated")
        methods = [seam, *seam.get("methods", ())] if seam else []
        taking = [
            one
            for one in methods
            if one["seam"].endswith(".take")
            and (one.get("base") or one.get("is_custom"))
            and one.get("module") != "labengine.core.radix.block_pool"
        ]
        return f"{taking[0]['class']}.take" if taking else None

    def _is_about_states(self, event: ev.Event) -> bool:
        """Return True for null entries in a table of states: that kind's seam describes what leaves a window."""
        return isinstance(event, ev.BlocksSkipped) and self.state.groups[event.group].kind == "state"

    def _has_start(self, number: int, step: int) -> bool:
        """Return True if the recording has a rolled-back step's start; without it the rollback removes no events."""
        for _, event in self.everything_backwards(number):
            if type(event) is ev.StepStarted:
                return event.step == step
            if type(event) is ev.StepRolledBack:
                return False
        return False
