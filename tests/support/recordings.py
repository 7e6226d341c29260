"""Recordings to save: workloads of all editions, with groups, tiers, aborts, and steps that failed or were given up."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

from disturbing import Countdown, Disturbance, core_calls_of_a_step, raise_disturbance
from grounds import Ground
from labengine.events import Event
from labengine.record.files.file import SavedRun, open_file, save
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

FACTS = {"title": "a run", "edition": "labengine"}


def word(token_id: int) -> str:
    """The text of a token."""
    return f"<{token_id}>"


def recording(ground: Ground, seed: int, max_events: int = 100_000) -> Timeline:
    """A run with adds, aborts, resets, abandoned steps, and errors in the middle of some."""
    timeline, hooks, rng = Timeline(max_events), Hooks(), Random(seed)
    hooks.subscribe(timeline.record)
    drive = ground.drive(seed, hooks, keep_finished=seed % 4 or None)
    for operation in drive.operations(rng):
        if operation in ("add", "update") and rng.random() < 0.1:
            with suppress(Disturbance):
                Countdown(core_calls_of_a_step, rng.randrange(80), raise_disturbance).run(drive.engine.step)
    return timeline


def timeline_of(events: Iterable[Event]) -> Timeline:
    """A recording of these events."""
    timeline = Timeline()
    for event in events:
        timeline.record(event)
    return timeline


def saved(timeline: Timeline, path: Path) -> SavedRun:
    """Written and opened again."""
    save(path, timeline, FACTS, word)
    return open_file(path)
