"""A session that was saved: everything a lab shows, with no engine, and without torch."""

from __future__ import annotations

from itertools import count
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from labengine.config import checked_int
from labengine.deprecated import with_old_names
from labengine.events import ViolationFound
from labengine.fold import Fold
from labengine.session.keywords import refuse_unknown
from labengine.session.recorded import Recorded
from labengine.session.recording_view_source import RecordingViewSource
from labengine.session.saved.code import to_code
from labengine.session.saved.seams_told import seams_told
from labengine.snapshot import Snapshot
from labengine.trace.atomic import write_whole
from labengine.trace.errors import TraceError
from labengine.trace.file import SavedRun, open_file
from labengine.trace.limits import MAX_BYTES, MAX_SECONDS, Limits
from labengine.violation import Violation

if TYPE_CHECKING:
    from labengine.trace.recorded_timeline import RecordedTimeline

_numbers = count(1)

_REFUSAL = "this is a saved recording, without an engine; to_code() writes it down as a script"


def open(
    path: str | PathLike[str], *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS, **unknown: object
) -> Trace:
    """A session that lab.save(path) wrote, to look at as at the lab itself; nothing in the file is run.

    max_bytes, max_seconds: memory and time that opening may take. Every event and keyframe is looked at: what opens can
    be shown, exported and walked. TraceError, before anything else, for what is damaged, contradicts itself, takes too
    much, is no trace, or is newer than this labengine.
    """
    refuse_unknown("open()", unknown, open)
    return Trace(open_file(path, Limits(path, max_bytes, max_seconds)))


@with_old_names
class Trace(Recorded):
    """A saved session: show(), view(...), why(...), goto(...), events_frame(), to_code(), export_html(...) as a Lab.

    timeline: its events, and the state at any moment among them. facts: what else is known of it, in JSON types.
    """

    timeline: RecordedTimeline

    def __init__(self, saved: SavedRun) -> None:
        self.timeline, self.facts = saved.timeline, saved.facts
        self._saved = saved
        self._lab = f"trace {next(_numbers)}"
        self.title = _text(saved.facts, "title")
        self.edition = _text(saved.facts, "edition")
        self._seams = seams_told(saved.facts)

    def snapshot(self) -> Snapshot:
        """The state at the end of the recording. At another moment: `timeline.state(moment).snapshot()`."""
        return self.timeline.state().snapshot()

    def fold(self) -> Fold:
        """The same as a Fold, to keep."""
        return self.timeline.state()

    def token_text(self, token_id: int) -> str:
        """One token as readable text; <#id> for one that does not occur."""
        return self._saved.texts.get(checked_int("token_id", token_id), f"<#{token_id}>")

    @property
    def violations(self) -> list[Violation]:
        """What the checks had found, oldest first, as far as it is still in the recording."""
        found = self.timeline.of_kind(ViolationFound)
        return [Violation(v.rule, v.message, v.request_ids, v.block_ids, v.step, v.first_event) for v in found]

    def view_source(self) -> RecordingViewSource:
        """What a view may see of it (labengine_widgets.view_source.ViewSource)."""
        return RecordingViewSource(self.title, self._lab, self.timeline, self.token_text, self._seams, _REFUSAL)

    def to_code(self) -> str:
        """A script that goes the way of this session again, with an engine. Read it before you run a stranger's."""
        return to_code(self.facts, self.token_text)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the same file again. TraceError when it cannot be written."""
        write_whole(path, self._saved.raw)

    def summary(self) -> str:
        """What there is, in two lines."""
        timeline, state = self.timeline, self.fold()
        dropped = f" (the first {timeline.num_dropped:,} were not kept)" if timeline.num_dropped else ""
        events = f"{timeline.end - timeline.num_dropped:,} events{dropped}"
        found = self.facts.get("num_violations") or "no"
        return f"{self.title}\n{state.step:,} steps, {len(state.requests):,} requests, {events}, {found} violations"

    def close(self) -> None:
        """Close the views. Twice is harmless; looking still works."""
        self._close_views()

    def __repr__(self) -> str:
        from labengine_widgets.ascii import block_map

        return f"{self.summary()}\n\n{block_map(self.snapshot(), self.timeline)}"

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(facts: dict[str, Any], name: str) -> str:
    text = facts.get(name)
    if not isinstance(text, str):
        raise TraceError(f"the trace does not tell its {name}: get it again")
    return text
