"""What the browser's model must show at every moment, by the Python fold and scene; states travel as checksums."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from driving import recorded
from grounds import Ground
from labengine import events as ev
from labengine.record.files import codec
from labengine.record.files.keyframe import keyframe as packed
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.phases import phase_after
from labengine.record.snapshot import map_key
from widgets.browser.model.drawn_scene import DrawnScene

PARTS = ("step", "phase", "score", "blocks", "requests", "queue", "map", "tier", "tree")
"""Of a state."""


@dataclass
class Reference:
    """A scene that follows events as a reader of the complete recording would: it reads everything after each."""

    scene: DrawnScene
    phase: str | None = None
    open_step: int | None = None
    before_step: DrawnScene | None = None

    def apply(self, event: ev.Event) -> None:
        """Move on by one event; a rolled-back step leaves what was before it, but for what the tier keeps."""
        if isinstance(event, ev.StepStarted):
            self.open_step, self.before_step = event.step, self._put_away()
        if isinstance(event, ev.StepRolledBack):
            if self.before_step is not None and self.open_step == event.step:
                self.before_step.tier = self.scene.tier
                self.scene = self.before_step
            self.open_step = self.before_step = None
        else:
            self.scene.apply(event)
        self.phase = phase_after(event, self.phase)
        self.scene.update()
        self._look(event)

    def state(self) -> list[Any]:
        """Everything that is compared, as JSON has it."""
        fold = self.scene.fold
        step, _, requests, queue, mapped, *_ = core(fold)
        tier = [map_key(*key) for key in self.scene.tier]
        score = list(self.scene.score)
        return [step, self.phase, score, self._blocks(), requests, queue, mapped, tier, tree(fold)]

    def _blocks(self) -> list[Any]:
        cells = [self.scene.cell(block_id) for block_id in range(self.scene.num_blocks)]
        evictable = self.scene.fold.tree.evictable()
        live = Counter(cell.content for cell in cells if cell.ref_count)
        return [
            [
                *(cell.block_id, cell.ref_count, cell.content, cell.fill, cell.flags, cell.owners),
                *(cell.tokens, cell.groups, bool(cell.ref_count and cell.content >= 0 and live[cell.content] > 1)),
                self.scene.fold.pins.get(cell.block_id, 0),
                cell.block_id in evictable,
            ]
            for cell in cells
        ]

    def _look(self, event: ev.Event) -> None:
        """Contents are numbered as they appear: in the order in which they are written."""
        if isinstance(event, ev.SlotsWritten):
            for block_id, _, _ in event.runs:
                self.scene.filling.content(block_id)
        if isinstance(event, ev.TokenSampled):  # of a slot that is written already
            for group, table in zip(self.scene.fold.groups, self._tables(event.request_id), strict=True):
                for block_id in table[event.position // group.block_size :][:1]:
                    self.scene.filling.content(block_id)
        for block_id in range(self.scene.num_blocks):
            self.scene.filling.content(block_id)

    def _tables(self, request_id: int) -> Sequence[Sequence[int]]:
        return self.scene.fold.requests[request_id].block_tables

    def _put_away(self) -> DrawnScene:
        return copy.deepcopy(self.scene, {id(self.scene.filling.contents): self.scene.filling.contents})


def states(events: Sequence[ev.Event], start: Reference | None = None) -> Iterator[list[Any]]:
    """The state at every moment, from the one before the first event on."""
    reference = start or Reference(DrawnScene(Fold()))
    yield reference.state()
    for event in events:
        reference.apply(event)
        yield reference.state()


def renumbered(state: list[Any]) -> list[Any]:
    """The state with its contents numbered as they come in it: equal for two that differ in numbers alone."""
    numbers: dict[int, int] = {-1: -1}
    blocks = [[*b[:2], numbers.setdefault(b[2], len(numbers) - 1), *b[3:]] for b in state[3]]
    return [*state[:3], blocks, *state[4:]]


def cores(events: Sequence[ev.Event]) -> Iterator[list[Any]]:
    """What the fold has at every moment, from the one before the first event on; no step among them is rolled back."""
    fold = Fold()
    yield core(fold)
    for event in events:
        fold.apply(event)
        yield core(fold)


def core(fold: Fold) -> list[Any]:
    """The state that events alone decide, as JSON has it."""
    blocks = [
        [fold.ref_counts[i], [map_key(*key) for key in keys], tokens, fold.pins.get(i, 0)]
        for i, (keys, tokens) in enumerate(zip(fold.block_keys, fold.block_tokens, strict=True))
    ]
    requests = [
        [i, r.status, r.token_ids, r.num_prompt_tokens, r.num_computed_tokens, r.block_tables]
        for i, r in fold.requests.items()
    ]
    mapped = [[map_key(*key), ids] for key, ids in fold.prefix_map.items()]
    rejected = [[i, *r.rejected] for i, r in fold.requests.items() if r.rejected is not None]
    states = [[fold.states.get(i), i in fold.spoiled] for i in range(len(fold.ref_counts))]
    return [fold.step, blocks, requests, list(fold.free_queue), mapped, rejected, states, tree(fold)]


def tree(fold: Fold) -> list[Any]:
    """The prefix tree: its nodes by age, and the node that each request holds."""
    nodes, ages = fold.tree.nodes, [node.node_id for node in fold.tree.states()]
    rows = [[i, n.parent_id, n.first_index, n.block_ids, n.num_locks] for i, n in ((i, nodes[i]) for i in ages)]
    return [rows, sorted(fold.tree.holds.items())]


def checksum(state: list[Any]) -> int:
    """Of a state's JSON; the page makes the same."""
    return crc32(json.dumps(state, separators=(",", ":")).encode())


def payload(events: Sequence[ev.Event], start: int = 0, keyframe: Fold | None = None, **more: Any) -> dict[str, Any]:
    """What a `full` message carries."""
    header = {"kinds": codec.KINDS, "first": 0, "is_live": True}
    document = {
        "header": header,
        "start": start,
        "keyframe": keyframe and packed(keyframe),
        "events": codec.rows(events),
    } | more
    return json.loads(codec.dumps(document))


def events_of(ground: Ground, seed: int, max_events: int = 500) -> list[ev.Event]:
    """A workload with aborts, resets and abandoned steps among it; most seeds keep few finished requests."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    for _ in ground.drive(seed, hooks, keep_finished=seed % 4 or None).operations(Random(seed)):
        if len(events) > max_events:
            break
    return events


def difference(events: list[ev.Event], wrong: dict[str, Any]) -> str:
    """What is different where, in a few lines."""
    moment = wrong["moment"]
    heading = f"{wrong['way']} at moment {moment}, after {events[moment - 1] if moment else None}\n"
    if wrong["way"] == "changes":
        return heading + wrong["text"]
    expected = json.loads(json.dumps(list(states(events[:moment]))[-1]))
    for name, python, page in zip(PARTS, expected, json.loads(wrong["text"]), strict=True):
        if python != page and isinstance(python, list) and len(python) == len(page):
            heading += "\n".join(f"{name}: {p} / {q}" for p, q in zip(python, page, strict=True) if p != q)
        elif python != page:
            heading += f"{name}: {python} / {page}\n"
    return heading
