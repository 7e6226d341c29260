"""A stream with one value of a wrong type is read or refused in words, by every command that reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from labengine.config import ConfigError
from labengine.conformance.conform import conform
from labengine.prefix_doctor.doctor import doctor
from recorded_files import written

WRONG: tuple[Any, ...] = (None, True, -1, 1.5, 10**30, "x", [], [[0]], {}, {"a": 1})
Place = tuple[int | str, ...]


def recorded() -> list[dict[str, Any]]:
    """Return the messages of a recorded stream with a salt, aborts and a reset."""
    for _, items in vllm_streams.read():
        text = json.dumps(items)
        if '"salt"' in text and '"abort"' in text:
            return items
    raise AssertionError("no recorded stream has a salt and an abort")


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yield where values are; of long lists the first three and the last."""
    if at:
        yield at
    if isinstance(value, dict):
        children = [*value.items()]
    else:
        children = [*enumerate(value)] if isinstance(value, list) else []
        children = [*children[:3], *children[3:][-1:]]
    for name, child in children:
        yield from places(child, (*at, name))


def damaged(items: list[dict[str, Any]], place: Place, value: Any) -> list[dict[str, Any]]:
    """Return the messages with another value at a place."""
    items = json.loads(json.dumps(items))
    at: Any = items
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = value
    return items


def read_all(items: list[dict[str, Any]], folder: Path) -> None:
    """Read a stream with everything that reads one; only a ConfigError may be raised."""
    try:
        path = written(items, folder)
    except (AttributeError, KeyError, TypeError, ValueError):  # the test's own writer
        return
    for read in (labengine.attach, conform, doctor):
        try:
            repr(read(path))
        except ConfigError as error:
            assert str(error)


def input_places(items: list[dict[str, Any]]) -> list[Place]:
    """Return the places of a salt's, an abort's and a reset's values."""
    found: dict[str, Place] = {}
    for number, item in enumerate(items):
        for i, (_, word, *_) in enumerate(item.get("message", {}).get("inputs", ())):
            found.setdefault(word, (number, "message", "inputs", i))
    return [at for way in found.values() for at in ((*way, 0), (*way, 1), (*way, 2), (*way, 3), way)]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_damaged_inputs_are_refused_in_words(value: Any, tmp_path: Path) -> None:
    items = recorded()
    for place in input_places(items):
        try:
            wrong = damaged(items, place, value)
        except IndexError:  # an abort has no third value
            continue
        read_all(wrong, tmp_path)


@pytest.mark.sweep
def test_one_wrong_value_anywhere(tmp_path: Path) -> None:
    items = recorded()
    for place in places(items):
        for value in WRONG:
            read_all(damaged(items, place, value), tmp_path)


@pytest.mark.parametrize("command", ["doctor", "conform", "bugs"])
def test_a_reader_that_goes_away_ends_a_command_quietly(command: str, tmp_path: Path) -> None:
    path = [] if command == "bugs" else [str(written(recorded(), tmp_path))]
    line = [sys.executable, "-m", "labengine", command, *path]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
