"""A stream that vLLM's own scheduler wrote, with a stretch of it cut out, as a tap would have lost it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import labengine
from differential import vllm_streams
from labengine.record.files.codec import dumps
from labengine.record.files.file_access import Limits
from labengine.record.files.keyframe import keyframe
from labengine.session.saved.trace import Trace
from labengine.vllm.stream.reader import StreamReader

SEED = 2
"""A recorded run with one group and 93 messages."""

FIRST, LAST = 42, 50
"""The messages that are cut out: whole steps."""

WHY = "the queue was full"


def recorded_run() -> list[dict[str, Any]]:
    """Return the lines of the run as JSON: the header, then the messages."""
    _, items = list(vllm_streams.read())[SEED]
    return [json.loads(line) for line in vllm_streams.lines_of(items)]


def cut_run(*, has_loss: bool = True) -> tuple[list[dict[str, Any]], int]:
    """Return the lines with a keyframe in place of the cut messages, and the number of events cut out.

    has_loss: the tap says what it lost; otherwise the messages are missing without a word.
    """
    header, *messages = recorded_run()
    cut, following = messages[FIRST : LAST + 1], messages[LAST + 1 :]
    reader = reader_of([header, *messages[: LAST + 1]])
    state = json.loads(dumps(keyframe(reader.pieces[-1].fold)))
    num_events = sum(len(message["e"]) for message in cut)
    names = {key: name for message in cut for key, name in message.get("names", {}).items()}
    resync: dict[str, Any] = {"n": LAST, "t": LAST, "k": state, "names": names}
    if has_loss:
        resync |= {"n": FIRST, "lost": {"why": WHY, "num_events": num_events, "num_steps": 0, "request": None}}
        following = [message | {"n": FIRST + 1 + i} for i, message in enumerate(following)]
    return [header, *messages[:FIRST], resync, *following], num_events


def reader_of(lines: Sequence[dict[str, Any]]) -> StreamReader:
    """Return a reader that has read these lines."""
    reader = StreamReader(Limits("run.labstream"), 10**6)
    for line in lines:
        reader.take_document(line)
    return reader


def opened_cut(folder: Path, piece: int | None = None, *, has_loss: bool = True) -> Trace:
    """Write the cut run into a file, and attach to it."""
    path = folder / "run.labstream"
    lines, _ = cut_run(has_loss=has_loss)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return labengine.attach(path, piece=piece)
