"""A saved session, reopened: all views of a lab, without an engine or torch."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from itertools import count
from os import PathLike
from types import NoneType
from typing import Any

from labengine.config import ConfigError, checked_int
from labengine.record.files.file import SavedRun, open_file
from labengine.record.files.file_access import MAX_BYTES, MAX_SECONDS, Limits, replace_file
from labengine.record.files.parsing import TraceError
from labengine.record.files.recorded_timeline import RecordedTimeline
from labengine.record.gap import Gap
from labengine.record.wording import readable, visible
from labengine.session.saved.code import to_code
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.settings import refuse_unknown
from labengine.session.view_source import RecordingViewSource

_REFUSAL = "this is a saved recording, without an engine: to_code() shows its code, and rerun(trust=True) runs it"

_NO_SESSION = (
    "this is a recording of a vLLM scheduler, not of a lab's session, so no code can repeat it; "
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
    """Open a session written by lab.save(path), with all views of the lab. Nothing in the file is run.

    max_bytes, max_seconds: memory and time that opening may take. Every event and keyframe is checked: a trace that
    opens can be shown, exported and stepped through. TraceError, before anything else, for a file that is not a trace,
    is damaged, contradicts itself, exceeds a limit, or is newer than this labengine.
    """
    refuse_unknown("open()", unknown, open)
    return Trace(open_file(path, Limits(path, max_bytes, max_seconds)))


class Trace(ViewedRecording):
    """A saved session: show(), view(...), why(...), goto(...), events_frame(), to_code(), export_html(...) as a Lab.

    timeline: its events, and the state at any moment among them. facts: its other data, in JSON types.
    """

    timeline: RecordedTimeline

    def __init__(self, saved: SavedRun) -> None:
        self.facts = saved.facts
        self.title = _text(saved.facts, "title")
        self.edition = _text(saved.facts, "edition")
        self._saved = saved
        self.note = _text(saved.facts, "note") if "note" in saved.facts else ""
        self._seams = checked_seams(saved.facts)
        saved.timeline.gap_before, saved.timeline.gap_after = checked_gaps(saved.facts)
        super().__init__(saved.timeline)

    # -- the recording -------------------------------------------------------------------------------------------------

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text; <#id> for a token that is not in the file."""
        return self._saved.texts.get(checked_int("token_id", token_id), f"<#{token_id}>")

    def view_source(self) -> RecordingViewSource:
        """Return the views' interface to this trace (a labengine_widgets.ViewSource)."""
        named = (self.title, self._lab, self.timeline, self.token_text, self._seams, _REFUSAL)
        names = self.request_names
        return RecordingViewSource(*named, note=self.note, engine_ids=lambda request_id: names.get(request_id, ""))

    # -- exports -------------------------------------------------------------------------------------------------------

    def to_code(self) -> str:
        """Return a script that repeats this session on an engine. Read it before you run a stranger's.

        ConfigError for a recording of another engine's scheduler.
        """
        if "stream" in self.facts:
            raise ConfigError(_NO_SESSION)
        return to_code(self.facts, self.token_text)

    def rerun(self, *, trust: bool = False) -> Any:  # a Lab, a class of a higher package
        """Repeat this session on an engine, and return its Lab. This runs code from the file: read to_code() first.

        ConfigError without trust=True. The file does not contain your connector: a warning says that the session is
        repeated without it.
        """
        if trust is not True:
            raise ConfigError(
                "rerun() runs the file's code with your rights on this machine: read to_code(), "
                "and then call rerun(trust=True)"
            )
        script = self.to_code()
        settings = self.facts["settings"]
        if lost := [name for name, value in settings.items() if isinstance(value, dict) and "proposer" not in value]:
            text = f"repeated without {', '.join(lost)}, which the file cannot recreate: see to_code()"
            warnings.warn(text, stacklevel=2)
        return run_script(script, self.title)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a copy of the file. TraceError if it cannot be written."""
        with self._private():
            replace_file(path, self._saved.raw)


def _text(facts: dict[str, Any], name: str) -> str:
    text = facts.get(name)
    if not isinstance(text, str):
        raise TraceError(f"the trace has an invalid {name} or none: download the file again")
    return readable(text, 400)


def checked_gaps(facts: Mapping[str, Any]) -> tuple[Gap | None, Gap | None]:
    """Return the gaps before and after a piece of a stream, each None without one. TraceError for anything else."""
    try:
        stream = _typed(facts.get("stream", {}), dict)
        before, after = (_gap(stream.get(name)) for name in ("gap_before", "gap_after"))
    except (LookupError, TypeError) as error:
        raise TraceError(f"the trace has invalid gaps of lost events ({error}): download the file again") from None
    return before, after


def _gap(fact: Any) -> Gap | None:
    if fact is None:
        return None
    first, last = (_typed(_typed(fact, dict)[name], int) for name in ("first_step", "last_step"))
    return Gap(first, last, _typed(fact["num_events"], int, NoneType), readable(_typed(fact["why"], str), 400))


def checked_seams(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts["code"], as made by `seams_of`; empty if the file has none. TraceError for anything else."""
    code = facts.get("code", {})
    try:
        for seam in _typed(code, dict).values():
            _check(seam)
            for method in _typed(seam.get("methods", []), list):
                _check(method)
    except (LookupError, TypeError) as error:
        raise TraceError(f"the trace has invalid methods for its events ({error}): download the file again") from None
    seen: dict[str, Any] = _seen(code)
    return seen


def _seen(value: Any) -> Any:
    """Return a JSON value with visible texts and names."""
    if isinstance(value, dict):
        return {visible(name): _seen(one) for name, one in value.items()}
    if isinstance(value, list):
        return [*map(_seen, value)]
    return visible(value) if isinstance(value, str) else value


def _check(method: Any) -> None:
    for name, types in _TYPES.items():
        _typed(_typed(method, dict)[name], *types)
    for name in _BASE if method["base"] is not None else ():
        _typed(method["base"][name], str)


def _typed(value: Any, *types: type) -> Any:
    if type(value) not in types:
        raise TypeError(f"{str(value)[:40]!r} is not of type {' or '.join(t.__name__ for t in types)}")
    return value


_numbers = count(1)


def run_script(text: str, title: str) -> Any:  # a Lab, a class of a higher package
    """Execute a script, and return its variable `lab`. The script's errors show its lines.

    Its source is kept, so that Why? shows the classes that it defines.
    """
    name = f"<script {next(_numbers)} of {title}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    with redirect_stdout(StringIO()):  # the script ends by printing the lab
        exec(compile(text, name, "exec"), space)
    return space["lab"]
