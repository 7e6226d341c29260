"""A recording to look at: its views, questions and exports, whether it has ended or still grows."""

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
"""Digits of a request's id in a file: Python refuses numbers of thousands."""

_MAX_MESSAGE = 4_000
"""Characters of a violation's message; the longest names hundreds of blocks."""

HeldStill = Callable[[], AbstractContextManager[None]]


class ViewedRecording(Looking):
    """What an opened trace and an attached stream have in common.

    timeline: the events, and the state at any moment among them. held_still: a context manager in which none is added.
    title: one line. note: what it lacks, in sentences; empty for nothing.
    """

    title: str
    note: str
    facts: dict[str, Any]
    """Its other data, in JSON types."""

    def __init__(self, timeline: Timeline, held_still: HeldStill = nullcontext) -> None:
        self.timeline: Timeline = timeline
        self._lab = f"trace {next(_numbers)}"
        self._begin_looking(held_still)

    # -- what a recording says of itself -------------------------------------------------------------------------------

    @abstractmethod
    def save(self, path: str | PathLike[str]) -> None:
        """Write a file that labengine.open reads. TraceError when it cannot be written."""

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def request_names(self) -> dict[int, str]:
        """The engine's own names of the requests, by request id; empty for a lab, whose requests are A, B, C."""
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
        """Violations that the checks had found and that are still in the recording: the gravest first, then by age."""
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
        """The newest exception that a part has raised inside a step; None without one."""
        return newest_crash(self.timeline)

    def summary(self) -> str:
        """Return the title, and the numbers of steps, requests, events and violations, in two lines."""
        timeline, state = self.timeline, self.fold()
        dropped = f" (the first {timeline.num_dropped:,} were not kept)" if timeline.num_dropped else ""
        events = f"{timeline.end - timeline.num_dropped:,} events{dropped}"
        found = readable(str(self.facts.get("num_violations") or "no"), _MAX_DIGITS)
        return f"{self.title}\n{state.step:,} steps, {len(state.requests):,} requests, {events}, {found} violations"

    # -- views and exports; see Looking --------------------------------------------------------------------------------

    def why(self, *selected: Any, **subject: Any) -> Why:
        """Answer why a subject is as it is at the shown moment; a request may be named as the engine does."""
        numbers = {name: i for i, name in self.request_names.items()}
        if isinstance(name := subject.get("request"), str):
            subject["request"] = numbers.get(name, name)
        return super().why(*selected, **subject)

    def export_html(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write one HTML file in which the run scrubs; return its path."""
        with self._private():
            return super().export_html(path, title)

    def _private(self) -> AbstractContextManager[None]:
        """Return a block in which files are for the user alone, where the recording is of an engine that serves."""
        return only_for_the_user() if "stream" in self.facts else nullcontext()

    def close(self) -> None:
        """Close the views. Twice is harmless; looking still works."""
        self.close_views()

    def __repr__(self) -> str:
        from labengine_widgets.pictures.ascii import block_map  # for views only

        return f"{self.summary()}\n\n{block_map(self.snapshot(), self.timeline)}"
