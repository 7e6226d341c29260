"""The state as messages of plain JSON types: all of it once, then only what changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from labengine import events as ev
from labengine.fold import Changes, Key
from labengine_widgets.names import request_name
from labengine_widgets.rows import Row, row, row_diff, shown_rows
from labengine_widgets.runs import Run, phase_after
from labengine_widgets.scene import Scene
from labengine_widgets.sentences import running_sentence, sentence

Frame = dict[str, Any]

MAX_QUEUE = 48
"""Chips of the free queue that are sent: the next victims."""

MAX_MAP_ROWS = 400
"""Entries of the prefix map in a full state, the newest; changes are sent whatever their number."""

MAX_TIER = 40
"""Contents of the external tier that are sent, the newest."""

MAX_MOVES = 12
MAX_FOCUS = 64


class FrameMaker:
    """Turns events into frames for a browser that has seen every frame before.

    A frame holds sentence, phase, step, score and, where changed: blocks (cells), rows (row diffs), gone (row keys),
    map ([key, content, ids], no ids for an entry that is gone), queue ({ids, total}), tier ({entries: [[key, content]],
    total}), moves, focus.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.phase: str | None = None
        self.sentence = ""
        self._rows: dict[tuple[int, int], Row] = {}
        self._num_in_tier = 0

    def play(self, run: Run) -> Frame:
        """Apply a run of events, and tell it."""
        self.follow(run.events)
        changes = self.scene.take_changes()
        self.sentence = sentence(run.told, self.scene)
        focus = [block_id for block_id in _focus(run.told) if block_id != self.scene.fold.null_block]
        return self._frame(changes) | {"moves": _moves(run.told), "focus": focus[:MAX_FOCUS]}

    def follow(self, events: Sequence[ev.Event]) -> None:
        """Apply events without telling them; `merged` tells what they came to."""
        for event in events:
            self.scene.apply(event)
            self.phase = phase_after(event, self.phase)

    def merged(self) -> Frame:
        """One frame for everything since the last one."""
        self.sentence = running_sentence(self.scene)
        return self._frame(self.scene.take_changes())

    def full(self) -> Frame:
        """All there is to see, for a browser that has seen nothing. Changes not yet sent are in it, too."""
        self.scene.take_changes()
        scene, self._rows = self.scene, {}
        cells = (scene.cell(block_id) for block_id in range(scene.num_blocks))
        keys = list(scene.fold.prefix_map)[-MAX_MAP_ROWS:]
        return self._head() | {
            "groups": [[group.kind, group.block_size, group.window] for group in scene.fold.groups],
            "num_blocks": scene.num_blocks,
            "null_block": scene.fold.null_block,
            "blocks": [list(cell) for cell in cells if cell.ref_count or cell.flags],
            "rows": self._row_diffs(set(scene.fold.requests))[0],
            "map": [self._entry(key) for key in keys],
            "queue": self._queue(),
            "tier": self._tier(),
        }

    def _frame(self, changes: Changes) -> Frame:
        frame = self._head()
        if changes.blocks:
            frame["blocks"] = [list(self.scene.cell(block_id)) for block_id in sorted(changes.blocks)]
        rows, gone = self._row_diffs(changes.requests)
        frame |= {name: part for name, part in (("rows", rows), ("gone", gone)) if part}
        if changes.keys:
            frame["map"] = [self._entry(key) for key in sorted(changes.keys)]
        if changes.is_queue_changed or changes.is_restarted:
            frame["queue"] = self._queue()
        if len(self.scene.tier) != self._num_in_tier:
            frame["tier"] = self._tier()
        return frame

    def _head(self) -> Frame:
        scene = self.scene
        return {"sentence": self.sentence, "phase": self.phase, "step": scene.fold.step, "score": list(scene.score)}

    def _queue(self) -> dict[str, Any]:
        return {"ids": list(islice(self.scene.fold.free_queue, MAX_QUEUE)), "total": len(self.scene.fold.free_queue)}

    def _tier(self) -> dict[str, Any]:
        tier, self._num_in_tier = self.scene.tier, len(self.scene.tier)
        newest = list(islice(reversed(tier), MAX_TIER))[::-1]
        entries = [[entry_name(key), self.scene.contents.of_hash(key)] for key in newest]
        return {"entries": entries, "total": len(tier)}

    def _entry(self, key: Key) -> list[Any]:
        ids = self.scene.fold.prefix_map.get(key, ())
        return [entry_name(key), self.scene.contents.of_hash(key), list(ids)]

    def _row_diffs(self, changed: set[int]) -> tuple[list[dict[str, Any]], list[str]]:
        keys = shown_rows(self.scene)
        gone = sorted(self._rows.keys() - set(keys))
        for key in gone:
            del self._rows[key]
        diffs = []
        for key in keys:
            if key[0] in changed or key not in self._rows:
                old = self._rows.get(key)
                new = row(self.scene, *key, old)
                diff = row_diff(key, new, old)
                self._rows[key] = new
                diffs += [diff] if diff else []
        return diffs, [f"{request_id}:{group}" for request_id, group in gone]


def entry_name(key: Key) -> str:
    """A map entry's name on the wire and in the picture: 'group:first 16 hex digits'."""
    return f"{key[0]}:{key[1].hex()[:16]}"


def _focus(told: Sequence[ev.Event]) -> list[int]:
    """Blocks to look at."""
    return list(dict.fromkeys(block_id for event in told for block_id in _event_focus(event)))


def _event_focus(event: ev.Event) -> Iterable[int]:
    match event:
        case ev.SlotsWritten():
            return (block_id for block_id, _, _ in event.runs)
        case ev.PrefixHit():
            return (block_id for group in event.block_ids for block_id in group)
        case ev.BlockMerged():
            return event.block_id, event.into_block_id
        case ev.BlocksLoaded() | ev.BlocksSaved():
            return (block_id for _, _, block_id, _ in event.transfers)
        case ev.ViolationFound():
            return event.block_ids
    block_id = getattr(event, "block_id", None)
    return () if block_id is None else (block_id,)


def _moves(told: Sequence[ev.Event]) -> list[list[str]]:
    """What slides: [label, from, to], the places named as the browser half anchors them."""
    moves = [move for event in told for move in _event_moves(event)]
    return moves[:MAX_MOVES]


def _event_moves(event: ev.Event) -> list[list[str]]:
    match event:
        case ev.BlockAllocated(block_id, request_id, group, index):
            return [[f"#{block_id}", f"queue:{block_id}", f"row:{request_id}:{group}:{index}"]]
        case ev.BlockTouched(block_id, request_id, group, index, ref_count):
            start = "queue" if ref_count == 1 else "pool"
            return [[f"#{block_id}", f"{start}:{block_id}", f"row:{request_id}:{group}:{index}"]]
        case ev.BlockCached(block_id, _, group, _, block_hash):
            return [[f"#{block_id}", f"pool:{block_id}", f"map:{entry_name((group, block_hash))}"]]
        case ev.BlockMerged(block_id, into, request_id, group, index):
            return [[request_name(request_id), f"pool:{block_id}", f"pool:{into}"]]
        case ev.BlocksLoaded(_, transfers):
            return [[f"#{i}", f"tier:{entry_name((group, key))}", f"pool:{i}"] for group, _, i, key in transfers]
        case ev.BlocksSaved(_, transfers):
            return [[f"#{i}", f"pool:{i}", f"tier:{entry_name((group, key))}"] for group, _, i, key in transfers]
        case ev.BlockFreed(block_id, queue_end=str()):
            return [[f"#{block_id}", f"pool:{block_id}", f"queue:{block_id}"]]
    return []
