"""A recording to view: its views, questions and exports, whether it is complete or still grows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.events import ViolationFound
from labengine.record.fold import Fold
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation, gravest_first
from labengine.record.wording import readable
from labengine.session.history.crash import Crash, newest_crash
from labengine.session.looking import Looking
from labengine.system.atomic_write import only_for_the_user

if TYPE_CHECKING:  # pandas and widgets, for views only
    from labengine_widgets.why import Why

_numbers = count(1)

_MAX_DIGITS = 20
"""Most digits of a request's id in a file, because Python refuses numbers of thousands of digits."""

_MAX_MESSAGE = 4_000
"""Most characters of a violation's message; the longest ones name hundreds of blocks."""

HeldStill = Callable[[], AbstractContextManager[None]]


class ViewedRecording(Looking):
    """The base of an opened trace and an attached stream.

    timeline: the events, and the state at any moment among them. held_still: a context manager that stops new events.
    title: one line. note: sentences on missing data; empty if complete.
    """

    title: str
    note: str
    facts: dict[str, Any]
    """The recording's other data, in JSON types."""

    def __init__(self, timeline: Timeline, held_still: HeldStill = nullcontext) -> None:
        self.timeline: Timeline = timeline
        self._lab = f"trace {next(_numbers)}"
        self._begin_looking(held_still)

    # -- the file ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def save(self, path: str | PathLike[str]) -> None:
        """Write a file that labengine.open reads. TraceError if it cannot be written."""

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def request_names(self) -> dict[int, str]:
        """The engine's names of the requests, by request id; empty for a lab, whose requests are A, B, C."""
        names = self.facts.get("request_names", {})
        if not isinstance(names, dict):
            return {}
        known = {i: str(name) for i, name in names.items() if i.isdecimal() and i.isascii() and len(i) < _MAX_DIGITS}
        return {int(i): readable(name) for i, name in known.items()}

    def snapshot(self) -> Snapshot:
        """Return the state at the end of the recording. At another moment: `timeline.state(moment).snapshot()`."""
        return self.timeline.state().snapshot()

    def fold(self) -> Fold:
        """Return the state at the end of the recording as a new Fold."""
        return self.timeline.state()

    @property
    def violations(self) -> list[Violation]:
        """Violations in the recording: the gravest first, then by age."""
        found = self.timeline.of_kind(ViolationFound)
        return gravest_first(
            Violation(
                readable(one.rule),
                readable(one.message, _MAX_MESSAGE),
                one.request_ids,
                one.block_ids,
                one.step,
                one.first_event,
                one.misnamed,
                tuple(readable(text, _MAX_MESSAGE) for text in one.fact),
            )
            for one in found
        )

    @property
    def crash(self) -> Crash | None:
        """The newest exception raised by a part inside a step, or None."""
        return newest_crash(self.timeline)

    def summary(self) -> str:
        """Return two lines: the title, and the numbers of steps, requests, events and violations."""
        timeline, state = self.timeline, self.fold()
        dropped = f" (the first {timeline.num_dropped:,} were not kept)" if timeline.num_dropped else ""
        events = f"{timeline.end - timeline.num_dropped:,} events{dropped}"
        found = readable(str(self.facts.get("num_violations") or "no"), _MAX_DIGITS)
        return f"{self.title}\n{state.step:,} steps, {len(state.requests):,} requests, {events}, {found} violations"

    # -- views and exports; see Looking --------------------------------------------------------------------------------

    def why(self, *selected: Any, **subject: Any) -> Why:
        """Explain the state of a subject at the shown moment; a request may have the engine's name."""
        numbers = {name: i for i, name in self.request_names.items()}
        if isinstance(name := subject.get("request"), str):
            subject["request"] = numbers.get(name, name)
        return super().why(*selected, **subject)

    def export_html(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write one HTML file to scrub through the run; return its path."""
        with self._private():
            return super().export_html(path, title)

    def _private(self) -> AbstractContextManager[None]:
        """Return a context in which files are readable only by their owner, if the recording is of a serving engine."""
        return only_for_the_user() if "stream" in self.facts else nullcontext()

    def close(self) -> None:
        """Close the views; the recording stays readable. Twice is harmless."""
        self.close_views()

    def __repr__(self) -> str:
        from labengine_widgets.pictures.ascii import block_map  # for views only

        return f"{self.summary()}\n\n{block_map(self.snapshot(), self.timeline)}"
