"""Streams with one value of another type: doctor, conform and attach read them or refuse them, and never break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import nan
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from json_places import REMOVED, Place, places, value_at, with_value
from labengine.config import ConfigError
from recorded_files import written

Item = dict[str, Any]
ITEMS: list[Item] = min((items for _, items in vllm_streams.read()), key=len)
KINDS = [kind for kind, *_ in ITEMS[0]["header"]["kinds"]]
VALUES = (None, True, -1, 0, 10**30, 2**40, 1.5, nan, "x", "", "\x1b[2K", [], {}, [1], {"a": 1}, [[]], [None], REMOVED)


def diagnosed(path: Path) -> None:
    found = labengine.doctor(path)
    repr(found), found.to_dict(), found._repr_html_()


def judged(path: Path) -> None:
    found = labengine.conform(path)
    repr(found), found.to_dict()
    repr(found.against("vllm"))


def attached(path: Path) -> None:
    with labengine.attach(path) as recording:
        repr(recording), recording.note, [str(one) for one in recording.violations]
        repr(recording.why(block=0))


WAYS: dict[str, Callable[[Path], None]] = {"doctor": diagnosed, "conform": judged, "attach": attached}


def kind_of(item: Item, place: Place) -> tuple[object, ...]:
    """Return what a value is, so that alike ones are tried once: of rows and inputs the kind and the field."""
    message, key, *after = (*place, None, None)[:5]
    if message == "message" and key in ("e", "inputs") and len(after) > 1 and isinstance(after[1], int):
        row = item["message"][key][after[0]]
        kind = KINDS[row[0]] if key == "e" else row[1]
        return (key, kind, *(min(one, 4) if isinstance(one, int) else one for one in place[3:]))
    return tuple("*" if isinstance(one, int) or (one or "").isdecimal() else one for one in place)


def different_places() -> Iterator[tuple[int, Place]]:
    seen = set[tuple[object, ...]]()
    for number, item in enumerate(ITEMS):
        for place in places(item):
            kind = kind_of(item, place)
            if len(place) > 1 and kind not in seen:
                seen.add(kind)
                yield number, place


def outcome(number: int, place: Place, value: object, folder: Path, way: str) -> str:
    """Return what went wrong; empty for a stream that is read, or refused in a sentence."""
    items = [*ITEMS]
    items[number] = with_value(items[number], place, value)
    try:
        WAYS[way](written(items, folder))
    except ConfigError:
        return ""
    except Exception as error:
        return f"{way}: {kind_of(ITEMS[number], place)} = {value!r}: {error!r}"
    return ""


PLACES = list(different_places())
INPUTS = [(number, place) for number, place in PLACES if place[1] == "inputs"]


def test_the_recording_has_what_is_to_be_damaged() -> None:
    words = {value_at(ITEMS[number], (*place[:3], 1)) for number, place in INPUTS if len(place) > 3}
    assert {"schedule", "update", "salt"} <= words and len(PLACES) > 250


@pytest.mark.parametrize("way", WAYS)
def test_the_calls_from_outside_are_checked(way: str, tmp_path: Path) -> None:
    salts = [(n, place) for n, place in INPUTS if kind_of(ITEMS[n], place)[1] == "salt"]
    found = [outcome(*one, value, tmp_path, way) for one in salts for value in (None, "x", 1, [], REMOVED)]
    assert len(found) >= 15 and list(filter(None, found)) == []


def test_a_salt_of_another_type_is_named(tmp_path: Path) -> None:
    number, place = next((n, place) for n, place in INPUTS if kind_of(ITEMS[n], place)[1:] == ("salt", 3))
    items = [*ITEMS]
    items[number] = with_value(items[number], place, 17)
    result = labengine.conform(written(items, tmp_path))
    assert "inconsistent at message" in result.why_unjudged and "type str" in result.why_unjudged


def test_an_unknown_token_among_known_ones_is_no_error(tmp_path: Path) -> None:
    adds = [(n, p) for n, p in PLACES if kind_of(ITEMS[n], p)[:2] == ("e", "RequestAdded") and len(p) > 4]
    assert adds and [outcome(*one, -1, tmp_path, "doctor") for one in adds] == [""] * len(adds)


@pytest.mark.sweep
@pytest.mark.parametrize("way", WAYS)
def test_every_field_may_be_of_another_type(way: str, tmp_path: Path) -> None:
    found = [outcome(*one, value, tmp_path, way) for one in PLACES for value in VALUES]
    assert list(filter(None, found)) == []
