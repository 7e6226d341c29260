"""A saved session, opened again: all views of a lab, without an engine and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from os import PathLike
from pathlib import Path
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from labengine.config import ConfigError, checked_int
from labengine.deprecated import with_old_names
from labengine.events import ViolationFound
from labengine.fold import Fold
from labengine.session.history.crash import Crash, newest_crash
from labengine.session.history.moments import Look
from labengine.session.named_views import Closeable
from labengine.session.recording_views import RecordingViews
from labengine.session.saved.code import to_code
from labengine.session.saved.run_script import run_script
from labengine.session.settings import refuse_unknown
from labengine.session.view_source import At, RecordingViewSource
from labengine.snapshot import Snapshot
from labengine.trace.file import SavedRun, open_file
from labengine.trace.file_access import MAX_BYTES, MAX_SECONDS, Limits, replace_file
from labengine.trace.parsing import TraceError
from labengine.trace.recorded_timeline import RecordedTimeline
from labengine.violation import Violation

if TYPE_CHECKING:  # pandas and widgets, for views only
    import pandas

    from labengine_widgets.feed.feed import Feed
    from labengine_widgets.selection import Selection
    from labengine_widgets.view import Dashboard
    from labengine_widgets.why import Why

_numbers = count(1)

_REFUSAL = "this is a saved recording, without an engine: rerun(trust=True) runs its code, and to_code() shows it"

_NO_SESSION = (
    "this is a recording of a vLLM scheduler, and not of a lab's session: there is no code that repeats it; "
    "every view, why(), events_frame() and export_html() work"
)

_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("seam", "class", "module", "reason", "source"), (str,)),
    "line": (int, NoneType),
    "base": (dict, NoneType),
    "is_custom": (bool,),
}
_BASE = ("class", "source", "reason")


def open(
    path: str | PathLike[str], *, max_bytes: int = MAX_BYTES, max_seconds: float = MAX_SECONDS, **unknown: object
) -> Trace:
    """Open a session that lab.save(path) wrote; its views are those of the lab. Nothing in the file is run.

    max_bytes, max_seconds: memory and time that opening may take. Every event and keyframe is checked: a trace that
    opens can be shown, exported and walked. TraceError, before anything else, for a file that is damaged, contradicts
    itself, takes too much, is no trace, or is newer than this labengine.
    """
    refuse_unknown("open()", unknown, open)
    return Trace(open_file(path, Limits(path, max_bytes, max_seconds)))


@with_old_names
class Trace:
    """A saved session: show(), view(...), why(...), goto(...), events_frame(), to_code(), export_html(...) as a Lab.

    timeline: its events, and the state at any moment among them. facts: its other data, in JSON types.
    """

    def __init__(self, saved: SavedRun) -> None:
        self.timeline: RecordedTimeline = saved.timeline
        self.facts: dict[str, Any] = saved.facts
        self.title = _text(saved.facts, "title")
        self.edition = _text(saved.facts, "edition")
        self._saved = saved
        self.note = _text(saved.facts, "note") if "note" in saved.facts else ""
        """What a recording of vLLM lacks, in sentences; empty for a lab's."""
        self._lab = f"trace {next(_numbers)}"
        self._seams = _checked_seams(saved.facts)
        self._views = RecordingViews(self.timeline, self.view_source, crash=lambda: self.crash)

    # -- the recording -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state at the end of the recording. At another moment: `timeline.state(moment).snapshot()`."""
        return self.timeline.state().snapshot()

    def fold(self) -> Fold:
        """Return the state at the end of the recording as a new Fold."""
        return self.timeline.state()

    @property
    def request_names(self) -> dict[int, str]:
        """The engine's own names of the requests, by request id; empty for a lab, whose requests are A, B, C."""
        names = self.facts.get("request_names", {})
        return {int(i): str(name) for i, name in names.items()} if isinstance(names, dict) else {}

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text; <#id> for one that does not occur."""
        return self._saved.texts.get(checked_int("token_id", token_id), f"<#{token_id}>")

    @property
    def violations(self) -> list[Violation]:
        """Violations that the checks had found and that are still in the recording, oldest first."""
        found = self.timeline.of_kind(ViolationFound)
        return [Violation(v.rule, v.message, v.request_ids, v.block_ids, v.step, v.first_event) for v in found]

    @property
    def crash(self) -> Crash | None:
        """The newest exception that a part has raised inside a step; None without one."""
        return newest_crash(self.timeline)

    def summary(self) -> str:
        """Return the title, and the numbers of steps, requests, events and violations, in two lines."""
        timeline, state = self.timeline, self.fold()
        dropped = f" (the first {timeline.num_dropped:,} were not kept)" if timeline.num_dropped else ""
        events = f"{timeline.end - timeline.num_dropped:,} events{dropped}"
        found = self.facts.get("num_violations") or "no"
        return f"{self.title}\n{state.step:,} steps, {len(state.requests):,} requests, {events}, {found} violations"

    # -- views; see Lab ------------------------------------------------------------------------------------------------

    def show(self, *, at: At | None = None) -> Dashboard:
        """Return the dashboard; with `at` a picture of that moment."""
        return self._views.show(at)

    def view(self, *names: str, at: At | None = None, **settings: Any) -> Closeable:
        """Return one view, or several beside each other; with `at` a picture of that moment."""
        return self._views.view(names, at, settings)

    @property
    def feed(self) -> Feed:
        """The feed of all views of this trace."""
        return self._views.feed

    def view_source(self) -> RecordingViewSource:
        """Return the views' interface to this trace (a labengine_widgets.ViewSource)."""
        named = (self.title, self._lab, self.timeline, self.token_text, self._seams, _REFUSAL)
        return RecordingViewSource(*named, note=self.note)

    @property
    def selection(self) -> Selection | None:
        """The thing selected in all views. Settable."""
        return self._views.selection

    @selection.setter
    def selection(self, selected: Selection | tuple[str, int | str] | None) -> None:
        self._views.select(selected)

    @property
    def moment(self) -> int | None:
        """The moment that the views show: after that many events; None is the newest. Settable."""
        return self._views.moment

    @moment.setter
    def moment(self, moment: int | None) -> None:
        self._views.show_moment(moment)

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> Look:
        """Show the state after a step, after an event inside it, or at the newest crash."""
        return self._views.goto(step, event)

    def back(self, num_steps: int = 1) -> Look:
        """Show the end of the step so many before the one that the views show."""
        return self._views.back(num_steps)

    def forward(self, num_steps: int = 1) -> Look:
        """Show the end of the step so many after the one that the views show."""
        return self._views.forward(num_steps)

    def why(self, *selected: Any, **subject: Any) -> Why:
        """Return why the subject is as it is at the moment that the views show."""
        numbers = {name: i for i, name in self.request_names.items()}
        if isinstance(name := subject.get("request"), str):
            subject["request"] = numbers.get(name, name)
        return self._views.why(selected, subject)

    # -- exports -------------------------------------------------------------------------------------------------------

    def events_frame(self) -> pandas.DataFrame:
        """Return the recorded events as a pandas frame, one row each."""
        return self._views.events_frame()

    def export_html(self, path: str | PathLike[str], title: str | None = None, *, charts: bool = False) -> Path:
        """Write one HTML file in which the run scrubs; return its path."""
        return self._views.export_html(path, title, charts=charts)

    def to_code(self) -> str:
        """Return a script that repeats this session, with an engine. Read it before you run a stranger's.

        ConfigError for a recording of another engine's scheduler.
        """
        if "stream" in self.facts:
            raise ConfigError(_NO_SESSION)
        return to_code(self.facts, self.token_text)

    def rerun(self, *, trust: bool = False) -> Any:  # a Lab, which this room does not know
        """Repeat this session on an engine, and return its Lab. The file's code is run: read to_code() first.

        ConfigError without trust=True: opening a file runs nothing of it, and this does.
        """
        if trust is not True:
            raise ConfigError(
                "the file's code would be run, with all that you may do on this machine: read to_code(), "
                "and then call rerun(trust=True)"
            )
        return run_script(self.to_code(), self.title)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the same file again. TraceError when it cannot be written."""
        replace_file(path, self._saved.raw)

    def close(self) -> None:
        """Close the views. Twice is harmless; looking still works."""
        self._views.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        from labengine_widgets.pictures.ascii import block_map  # for views only

        return f"{self.summary()}\n\n{block_map(self.snapshot(), self.timeline)}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self._views.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self._views.show()._ipython_display_()


def _text(facts: dict[str, Any], name: str) -> str:
    text = facts.get(name)
    if not isinstance(text, str):
        raise TraceError(f"the trace does not tell its {name}: get it again")
    return text


def _checked_seams(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts["code"], as `seams_of` made it; empty where a file has none. TraceError for anything else."""
    code = facts.get("code", {})
    try:
        for seam in _typed(code, dict).values():
            _check(seam)
            for method in _typed(seam.get("methods", []), list):
                _check(method)
    except (LookupError, TypeError) as error:
        raise TraceError(f"the trace does not tell what decided its events ({error}): get it again") from None
    return dict(code)


def _check(method: Any) -> None:
    for name, types in _TYPES.items():
        _typed(_typed(method, dict)[name], *types)
    for name in _BASE if method["base"] is not None else ():
        _typed(method["base"][name], str)


def _typed(value: Any, *types: type) -> Any:
    if type(value) not in types:
        raise TypeError(f"{str(value)[:40]!r} is no {' or '.join(t.__name__ for t in types)}")
    return value
