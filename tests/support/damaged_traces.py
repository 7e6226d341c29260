"""Saved sessions with one error under a valid checksum, as if written by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from grounds import Ground
from labengine.events import StepStarted
from labengine.record.files import segments
from labengine.record.timeline import Timeline
from recordings import recording, saved

GROUNDS = (Ground("labengine"), Ground("nano-vllm"), Ground("vllm", True), Ground("labengine", True, "late"))
"""One group and several, a null block of the pool's own, a tier."""

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 1.5, 2**31, 2**40, 10**30, "", "x", "ab"),
    *([], [0], [[0, 0, 0]], [[-1, 2**40, 1]], {}, [None]),
)


@dataclass(frozen=True)
class Damage:
    """A file's lines, in which one thing is wrong; `what` says which."""

    what: str
    content: bytes


@cache
def sound_lines(ground: Ground, seed: int) -> tuple[bytes, ...]:
    """Of a small recording in several pieces; those of odd seeds have dropped their oldest events."""
    usual, segments.EVENTS_PER_SEGMENT = segments.EVENTS_PER_SEGMENT, 60
    try:
        with TemporaryDirectory() as folder:
            raw = saved(_small(ground, seed), Path(folder) / "run.lab").raw
    finally:
        segments.EVENTS_PER_SEGMENT = usual
    return tuple(gzip.decompress(raw).split(b"\n"))


def _small(ground: Ground, seed: int) -> Timeline:
    """The end of a recording, or for an even seed its beginning."""
    if seed % 2:
        return recording(ground, seed, max_events=250)
    timeline, complete = Timeline(), recording(ground, seed)
    steps = [moment for moment, event in enumerate(complete.events()) if isinstance(event, StepStarted)]
    for event in complete.events(0, next((moment for moment in steps if moment > 250), complete.end)):
        timeline.record(event)
    return timeline


def damages(ground: Ground, seed: int, number: int) -> Iterator[Damage]:
    """So many files, each with another thing wrong."""
    rng, lines = Random(f"{ground} {seed}"), sound_lines(ground, seed)
    for _ in range(number):
        where = rng.choices(range(len(lines)), [1, 1, 1, 1, *[4] * (len(lines) - 5), 2])[0]
        document = json.loads(lines[where])
        way = rng.choice((_changed, _changed, _changed, _changed, _dropped, _doubled, _swapped))
        what, document = way(rng, document)
        changed = [*lines[:where], json.dumps(document).encode(), *lines[where + 1 :]]
        yield Damage(f"line {where}: {what}", gzip.compress(b"\n".join(changed), 1))


def _changed(rng: Random, document: Any) -> tuple[str, Any]:
    """Another value somewhere."""
    wrong = rng.choice(WRONG)
    if not isinstance(document, (list, dict)) or not document or rng.random() < 0.1:
        if type(document) is int and rng.random() < 0.5:
            wrong = document + rng.choice((-1, 1, 2, 100))
        return f"{str(document)[:40]} becomes {wrong}", wrong
    key = rng.choice(range(len(document)) if isinstance(document, list) else list(document))
    what, document[key] = _changed(rng, document[key])
    return f"[{key}]{what}" if what.startswith("[") else f"[{key}] {what}", document


def _rows(document: Any) -> list[Any]:
    return document if isinstance(document, list) else []


def _dropped(rng: Random, document: Any) -> tuple[str, Any]:
    if rows := _rows(document):
        return f"lost {str(rows.pop(rng.randrange(len(rows))))[:60]}", document
    return _changed(rng, document)


def _doubled(rng: Random, document: Any) -> tuple[str, Any]:
    if rows := _rows(document):
        rows.insert(rng.randrange(len(rows)), rows[rng.randrange(len(rows))])
    return "a row twice", document


def _swapped(rng: Random, document: Any) -> tuple[str, Any]:
    """One row takes the place of another: the number of rows is right."""
    if rows := _rows(document):
        one, other = rng.randrange(len(rows)), rng.randrange(len(rows))
        rows[one], rows[other] = rows[other], rows[one]
        return f"{str(rows[other])[:40]} and {str(rows[one])[:40]} change places", document
    return _changed(rng, document)
