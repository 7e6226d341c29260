"""Recordings of a lab, of a file, and of the tap on vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError
from labengine.core.request import ExtraKeys
from labengine.lab import Lab
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine, Repeatable, kept_events
from labengine.prefix_doctor.look_ups.saved_settings import (
    HAS_TIER,
    salts_in,
    with_settings_of,
    with_settings_of_stream,
)
from labengine.record.files.file import open_file
from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import TraceError
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.session.history.inputs import AddInput
from labengine.session.saved.trace import Trace
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.vllm.conformance.edition_run import salts_of
from labengine.vllm.conformance.recorded import read
from labengine.vllm.conformance.saved import recorded_in
from labengine.vllm.conformance.settings import drops_last_block
from labengine.vllm.stream.endpoints import is_live
from labengine.vllm.stream.header import FORMAT, StreamHeader
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.token_texts import token_text_of

Place = str | PathLike[str]
MAX_EVENTS = 10_000_000
"""Most events read from a stream: the newest ones of a longer one."""

TokenText = Callable[[int], str]


def recordings_of(
    source: Lab | ViewedRecording | Place, tokenizer: Place | None, limits: Limits
) -> list[RecordedEngine]:
    """Return the recordings to examine: one, or the pieces of a stream with gaps.

    Raises ConfigError for a source without a recording, TraceError for a damaged file.
    """
    token_text = None if tokenizer is None else token_text_of(tokenizer)
    if isinstance(source, Lab):
        return [_of_lab(source, token_text)]
    if isinstance(source, ViewedRecording):
        return [_of_view(source, token_text)]
    if not isinstance(source, (str, PathLike)):
        raise ConfigError(f"doctor() needs a lab, a recording or a file, got {type(source).__name__}")
    if is_live(source):
        raise ConfigError(
            f"attach first: use labengine.doctor(labengine.attach({source!r})) or `labengine doctor {source}`"
        )
    path = Path(source)
    if path.is_file() and not _is_stream(path):
        return [_of_view(Trace(open_file(path, limits)), token_text)]
    return list(_of_stream(source, token_text, limits))


def _of_lab(lab: Lab, token_text: TokenText | None) -> RecordedEngine:
    if lab.timeline is None:
        raise ConfigError("this lab has no recording: omit record=False when you make it")
    with lab.session.stepper.reading():
        adds = [one for one in lab.session.inputs.done if isinstance(one, AddInput)]
        salts = {number: one.options.extra_keys for number, one in enumerate(adds)}
        recorded = _recording(lab.timeline, lab.title, token_text or lab.token_text, salts)
    if lab.external is not None:
        return replace(recorded, why_not_repeatable=HAS_TIER)
    return replace(recorded, repeatable=Repeatable(lab.config, lab.parts, salts))


def _of_view(view: ViewedRecording, token_text: TokenText | None) -> RecordedEngine:
    if isinstance(view, LiveStream):
        piece, why = view.reader.pieces[-1], "have the tap write files (LABENGINE_TAP=file:DIR) and examine those"
        recorded = _recording(view.timeline, view.title, token_text or view.token_text, salts_of(piece))
        late = recorded.why_late or piece.gap
        recorded = replace(recorded, names=view.request_names, times=dict(piece.times), why_late=late)
        header = view.reader.header
        drops = header is not None and drops_last_block(header)
        return replace(recorded, is_async=_is_async(header), drops_last_block=drops, why_not_repeatable=why)
    own_text = view.token_text if isinstance(view, Trace) else None
    if "stream" in view.facts:
        recorded = _recording(view.timeline, view.title, token_text or own_text, None)
        return _of_saved_stream(replace(recorded, names=view.request_names), view)
    salts = salts_in(view.facts)
    recorded = _recording(view.timeline, view.title, token_text or own_text, salts)
    return with_settings_of(recorded, view.facts, salts or {})


def _of_saved_stream(recorded: RecordedEngine, view: ViewedRecording) -> RecordedEngine:
    """Add salts and settings to a saved recording of a stream, if it has them."""
    try:
        stream = recorded_in(view.timeline, view.facts, view.title)
    except TraceError as error:
        return replace(recorded, why_not_repeatable=str(error))
    salts, drops = salts_of(stream.piece), drops_last_block(stream.header)
    return with_settings_of_stream(replace(recorded, salts=salts, drops_last_block=drops), stream, salts)


def _of_stream(place: Place, token_text: TokenText | None, limits: Limits) -> Iterator[RecordedEngine]:
    stream = read(place, limits, MAX_EVENTS)
    names = {number: readable(name) for number, name in stream.names.items()}
    salts = {number: keys for piece in stream.pieces for number, keys in salts_of(piece).items()}
    for number, piece in enumerate(stream.pieces, 1):
        recorded = _recording(piece.timeline, stream.title, token_text, salts)
        why_late = recorded.why_late or piece.gap
        note = f"The recording is incomplete: {stream.note or stream.why_incomplete}" if stream.is_cut else ""
        recorded = replace(recorded, names=names, times=piece.times, why_late=why_late, note=note * (number == 1))
        recorded = replace(recorded, drops_last_block=drops_last_block(stream.header))
        recorded = replace(recorded, is_async=_is_async(stream.header))
        yield with_settings_of_stream(recorded, stream, salts) if number == 1 else recorded


def _recording(
    timeline: Timeline, title: str, token_text: TokenText | None, salts: Mapping[int, ExtraKeys] | None
) -> RecordedEngine:
    first, events, dropped = kept_events(timeline)
    why_late = f"its first {dropped:,} events were not kept" if dropped else ""
    seconds = dict(timeline.step_seconds)
    return RecordedEngine(title, first, events, token_text, salts=salts, step_seconds=seconds, why_late=why_late)


def _is_async(header: StreamHeader | None) -> bool:
    return header is not None and header.settings.get("is_async") is True


def _is_stream(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return FORMAT.encode() in file.read(200)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
