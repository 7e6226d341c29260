"""The traffic in a place: what a file holds is decided by its content, not by its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from labengine.config import checked_path
from labengine.lab import Lab
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.traffic.cached_prefixes import traffic_of_kv_events
from labengine.prefix_doctor.traffic.encoding import encoding_of
from labengine.prefix_doctor.traffic.hashed_trace import NOTE, HashedTrace, is_hashed
from labengine.prefix_doctor.traffic.json_lines import JsonLines
from labengine.prefix_doctor.traffic.line import line_of
from labengine.prefix_doctor.traffic.prompt import Traffic
from labengine.prefix_doctor.traffic.prompts_file import PromptsFile
from labengine.record.files.file_access import Limits
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.vllm.cache_events import kv_files
from labengine.vllm.stream.endpoints import is_live
from labengine.vllm.stream.files import SUFFIX, places_in
from labengine.vllm.stream.token_texts import token_text_of

MAX_SECONDS = 3600.0
"""Seconds that opening a recording may take by default."""
NUM_EXAMPLES = 100
"""Objects by which a file of JSON is told from others."""

_FORMAT = re.compile(rb'\{"format": ?"(labengine [a-z ]+)"')
"""The beginning of a saved recording, of a stream and of a file of KV events."""

Place = str | PathLike[str]


@dataclass(frozen=True)
class FileTraffic(Traffic):
    """Traffic that is read from a file of JSON as it is used."""

    share_read: Callable[[], float] = float
    """Returns the share of the file that the newest reading has read, from 0 to 1."""
    num_bytes: int = 0


Recordings = dict[str, list[RecordedEngine]]
"""The pieces of each engine's recording, by the engine's name."""


def opened(place: Lab | ViewedRecording | Place, tokenizer: Place | None, limits: Limits) -> Traffic | Recordings:
    """Return the prompts of a file, or the recordings of engines.

    place: a file of prompts or a trace of hashes (a FileTraffic, which also reads .gz), a recording in any form that
    doctor() takes, a folder of the tap's streams (each is a replica), or a file of KV events. tokenizer: a model's
    directory or name, for texts. Raises ConfigError, or TraceError for a damaged recording; a FileTraffic raises
    ConfigError as it is read.
    """
    if isinstance(place, (Lab, ViewedRecording)):
        return {"": recordings_of(place, tokenizer, limits)}
    path = checked_path("place", place)
    if path.is_dir() or is_live(place) or _names_stream(path):
        streams = sorted(places_in(place), key=lambda one: (len(one), one))  # rank 10 after rank 2
        return {Path(one).name: recordings_of(one, tokenizer, limits) for one in streams}
    with closing(JsonLines(path)) as lines:
        form = _FORMAT.match(lines.head())
        if form and form[1] == kv_files.FORMAT.encode():
            return traffic_of_kv_events(path, limits, None if tokenizer is None else token_text_of(tokenizer))
        if form:
            return {path.name: recordings_of(place, tokenizer, limits)}
        examples = [found for _, found in islice(lines.objects(), NUM_EXAMPLES)]
    return _traffic_of_examples(path, examples, tokenizer)


def _traffic_of_examples(path: Path, examples: list[dict[str, Any]], tokenizer: Place | None) -> FileTraffic:
    encoding = encoding_of(tokenizer)
    if 2 * sum(map(is_hashed, examples)) > len(examples):
        file, token_text = PromptsFile(path, HashedTrace(examples).line, encoding, NOTE), None
    else:
        has_text = tokenizer is not None or any(map(_has_text, examples))
        file, token_text = PromptsFile(path, line_of, encoding), encoding.token_text if has_text else None
    return FileTraffic(path.name, file.read, token_text, file.notes, file.share_read, path.stat().st_size)


def _has_text(found: dict[str, Any]) -> bool:
    try:
        line = line_of(1, found)
    except (ValueError, RecursionError):
        return False
    return line.text is not None or line.chat is not None


def _names_stream(path: Path) -> bool:
    """Return True for FOLDER/STREAM, as `places_in` returns it."""
    files = path.parent.glob(f"*{SUFFIX}") if path.parent.is_dir() and not path.exists() else ()
    return any(file.name.startswith(path.name) for file in files)
