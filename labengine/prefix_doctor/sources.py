"""Recordings of a lab, of a file, and of what the tap on vLLM has written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.conformance.recorded import read
from labengine.conformance.rerun import salts_of
from labengine.lab import Lab
from labengine.prefix_doctor.recording import RecordedEngine, kept_events
from labengine.session.history.inputs import AddInput
from labengine.session.saved.recording import ViewedRecording
from labengine.session.saved.trace import Trace
from labengine.stream.endpoints import is_live
from labengine.stream.header import FORMAT
from labengine.stream.live import LiveStream
from labengine.stream.token_texts import token_text_of
from labengine.timeline import Timeline
from labengine.trace.file import open_file
from labengine.trace.file_access import Limits
from labengine.wording import readable

Place = str | PathLike[str]
MAX_EVENTS = 10_000_000
"""Events that are read of a stream; of a longer one the newest."""

TokenText = Callable[[int], str]


def recordings_of(
    source: Lab | ViewedRecording | Place, tokenizer: Place | None, limits: Limits
) -> list[RecordedEngine]:
    """Return what there is to examine: one recording, or the pieces of a stream with gaps.

    Raises ConfigError for what has no recording, TraceError for what is damaged.
    """
    token_text = None if tokenizer is None else token_text_of(tokenizer)
    if isinstance(source, Lab):
        return [_of_lab(source, token_text)]
    if isinstance(source, ViewedRecording):
        return [_of_view(source, token_text)]
    if not isinstance(source, (str, PathLike)):
        raise ConfigError(f"doctor takes a lab, a recording, or a file; got {type(source).__name__}")
    if is_live(source):
        raise ConfigError(
            f"attach to it first: labengine.doctor(labengine.attach({source!r})), or %lab attach {source}"
        )
    path = Path(source)
    if path.is_file() and not _is_stream(path):
        return [_of_view(Trace(open_file(path, limits)), token_text)]
    return list(_of_stream(source, token_text, limits))


def _of_lab(lab: Lab, token_text: TokenText | None) -> RecordedEngine:
    if lab.timeline is None:
        raise ConfigError("this lab has no recording: make it without record=False")
    with lab.session.stepper.reading():
        adds = [one for one in lab.session.inputs.done if isinstance(one, AddInput)]
        salts = {number: (one.cache_salt, one.extra_keys) for number, one in enumerate(adds)}
        return _recording(lab.timeline, lab.title, token_text or lab.token_text, salts=salts)


def _of_view(view: ViewedRecording, token_text: TokenText | None) -> RecordedEngine:
    if isinstance(view, LiveStream):
        piece = view.reader.pieces[-1]
        details: dict[str, Any] = {"names": view.request_names, "times": dict(piece.times), "why_late": piece.gap}
        return _recording(view.timeline, view.title, token_text or view.token_text, **details)
    is_stream = "stream" in view.facts
    salts = None if is_stream else _salts_in(view.facts)
    own_text = view.token_text if isinstance(view, Trace) else None
    return _recording(view.timeline, view.title, token_text or own_text, names=view.request_names, salts=salts)


def _of_stream(place: Place, token_text: TokenText | None, limits: Limits) -> Iterator[RecordedEngine]:
    recorded = read(place, limits, MAX_EVENTS)
    names = {number: readable(name) for number, name in recorded.names.items()}
    salts = {number: keys for piece in recorded.pieces for number, keys in salts_of(piece).items()}
    for number, piece in enumerate(recorded.pieces, 1):
        part = f" · piece {number} of {len(recorded.pieces)}" if len(recorded.pieces) > 1 else ""
        details: dict[str, Any] = {"names": names, "salts": salts, "times": piece.times}
        yield _recording(piece.timeline, recorded.title + part, token_text, why_late=piece.gap, **details)


def _recording(
    timeline: Timeline,
    title: str,
    token_text: TokenText | None,
    *,
    names: Mapping[int, str] | None = None,
    salts: Mapping[int, Hashable] | None = None,
    times: Mapping[int, float] | None = None,
    why_late: str = "",
) -> RecordedEngine:
    first, events, dropped = kept_events(timeline)
    if dropped:
        why_late = f"its first {dropped:,} events are not kept"
    return RecordedEngine(title, first, events, token_text, names or {}, salts, times or {}, why_late)


def _salts_in(facts: Mapping[str, Any]) -> dict[int, Hashable] | None:
    """Return what a saved lab's requests had besides tokens. A file is not trusted: None where it is no such thing."""
    try:
        adds = [one for one in facts["inputs"] if one["do"] == "add"]
        return {
            number: (str(one["cache_salt"]), tuple(sorted(one["extra_keys"].items())))
            for number, one in enumerate(adds)
        }
    except (LookupError, TypeError, AttributeError):
        return None


def _is_stream(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return FORMAT.encode() in file.read(200)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
