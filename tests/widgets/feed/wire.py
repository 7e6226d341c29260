"""A fake widget: keeps what a feed sends, and folds it as the browser does."""

from __future__ import annotations

import gzip
import json
from typing import Any

from labengine.record.files.codec import event_of
from labengine.record.files.keyframe import fold_of
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine_widgets.feed.viewers import Viewer

Message = dict[str, Any]


def read(buffer: bytes) -> Any:
    """A payload, gzipped or not."""
    return json.loads(gzip.decompress(buffer) if buffer[:2] == b"\x1f\x8b" else buffer)


class Wire(Viewer):
    """A viewer that shows nothing."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.num_updates = 0

    def send(self, content: Message, buffers: list[bytes] | None = None) -> None:
        payload = read(buffers[0]) if buffers else {}
        self.messages.append(json.loads(json.dumps(content)) | {"payload": payload})

    def update_saved(self) -> None:
        self.num_updates += 1

    def close(self) -> None:
        pass

    def of_type(self, *kinds: str) -> list[Message]:
        return [message for message in self.messages if message["type"] in kinds]

    @property
    def states(self) -> list[Message]:
        return self.of_type("full", "more")


def heard(full: Message, messages: list[Message]) -> Timeline:
    """The recording that these messages add up to. AssertionError where one does not join on."""
    recording = begun(full)
    for message in messages:
        payload = message["payload"]
        if message["type"] == "full":
            recording = begun(payload)
            continue
        assert payload["start"] == recording.end, "a gap"
        for row in payload["events"]:
            recording.record(event_of(row))
    return recording


def begun(payload: Message) -> Timeline:
    """The recording of a `full` payload, its moments counted as the lab counts them."""
    recording = Timeline.starting_at(fold_of(payload["keyframe"]))
    recording.num_dropped = payload["start"]
    recording._keyframes = {payload["start"]: fold_of(payload["keyframe"])}
    for row in payload["events"]:
        recording._events.append(event_of(row))
    return recording


def picture(fold: Fold) -> Any:
    """All of a state."""
    return fold.snapshot()
