"""The browser's copy of the state, in Python: applies frames as state.js does, to judge them without it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from labengine_widgets.frames import Frame, FrameMaker


@dataclass
class Seen:
    """What a reader has before them after some frames."""

    head: dict[str, Any] = field(default_factory=dict)
    blocks: dict[int, list[Any]] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    map: dict[str, tuple[int, list[int]]] = field(default_factory=dict)
    queue: dict[str, Any] = field(default_factory=dict)
    tier: dict[str, Any] = field(default_factory=dict)

    def apply(self, frame: Frame) -> Seen:
        """Move on by one frame, which must survive JSON."""
        frame = json.loads(json.dumps(frame))
        self.head = {name: frame[name] for name in ("phase", "step", "score")}
        for cell in frame.get("blocks", []):
            self.blocks[cell[0]] = cell
            if not cell[1] and not cell[4]:
                del self.blocks[cell[0]]
        for diff in frame.get("rows", []):
            self._apply_row(diff)
        for key in frame.get("gone", []):
            del self.rows[key]
        for key, content, ids in frame.get("map", []):
            self.map[key] = (content, ids)
            if not ids:
                del self.map[key]
        self.queue = frame.get("queue", self.queue)
        self.tier = frame.get("tier", self.tier)
        return self

    def _apply_row(self, diff: dict[str, Any]) -> None:
        row = self.rows.setdefault(diff["key"], {"table": [], "texts": []})
        for name, length in (("table", diff["length"]), ("texts", diff["num_texts"])):
            values = row[name][:length] + [None] * (length - len(row[name]))
            for index, value in diff.get(name, []):
                values[index] = value
            row[name] = values
        row.update({name: value for name, value in diff.items() if name not in ("table", "texts")})


def everything(maker: FrameMaker) -> Seen:
    """What a browser has that just came and was sent all."""
    return Seen().apply(maker.full())
