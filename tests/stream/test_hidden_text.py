"""Texts of a stream's header, names and messages: none brings a control or direction mark into a terminal or a cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from hidden_texts import HIDING, hidden_in
from json_places import places, value_at, with_texts, with_value
from labengine.__main__ import main
from labengine.config import ConfigError
from recorded_files import written

Item = dict[str, Any]
BROKEN: list[Item] = min((items for _, items in vllm_streams.read(vllm_streams.BROKEN_PATH)), key=len)
SOUND: list[Item] = min((items for _, items in vllm_streams.read()), key=len)
FIXED = ("format", "kinds", "stream")


def texts_of(path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[str]:
    """Yield every text that leads out of a stream."""
    for command in ("attach", "doctor", "conform"):
        main([command, str(path)])
        said = capsys.readouterr()
        yield said.out + said.err
    for texts in (diagnosed, judged, attached):
        try:
            yield from texts(path)
        except ConfigError as error:
            yield str(error)


def diagnosed(path: Path) -> Iterator[str]:
    found = labengine.doctor(path)
    yield from (repr(found), *map(repr, found.look_ups), *map(repr, found.findings), found._repr_html_())


def judged(path: Path) -> Iterator[str]:
    found = labengine.conform(path)
    yield from (repr(found), str(found.difference), *map(str, found.violations), repr(found.against("vllm")))


def attached(path: Path) -> Iterator[str]:
    with labengine.attach(path) as recording:
        yield from (repr(recording), recording.note, recording.title, str(recording.crash))
        yield from (repr(recording.request_names), *map(repr, recording.violations))
        subjects = [("request", i) for i in recording.fold().requests][:6] + [("block", i) for i in range(6)]
        for name, number in subjects + [("event", i) for i in range(0, recording.timeline.end, 9)]:
            try:
                yield str(recording.why(**{name: number}))
            except ValueError as error:
                yield str(error)
        recording.save(path.with_name("saved.lab"))
    yield repr(labengine.open(path.with_name("saved.lab")))


def hostile(item: Item) -> Item:
    """Return a copy with a text that hides something behind each text that may be any."""
    [(kind, content)] = item.items()
    fixed = FIXED if kind == "header" else ()
    kept = {name: value for name, value in content.items() if name in fixed} if isinstance(content, dict) else {}
    changed = with_texts(content, lambda text: text + HIDING)
    return {kind: changed | kept} if kept else {kind: changed}


@pytest.mark.parametrize("items", [SOUND, BROKEN], ids=["sound", "broken"])
def test_nothing_of_a_header_or_of_names_hides(
    items: list[Item], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_names(item: Item) -> Item:
        message = item.get("message", {})
        names = {key: f"{name}{HIDING}" for key, name in message.get("names", {}).items()}
        return {"message": {**message, "names": names}} if names else item

    changed = [hostile(item) if "header" in item else of_names(item) for item in items]
    found = list(filter(None, map(hidden_in, texts_of(written(changed, tmp_path), capsys))))
    assert found == []


@pytest.mark.sweep
@pytest.mark.parametrize("items", [SOUND, BROKEN], ids=["sound", "broken"])
def test_no_text_of_a_stream_hides(items: list[Item], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, seen = [], set[tuple[object, ...]]()
    for number, item in enumerate(items):
        for place in places(item):
            kind = tuple("*" if isinstance(one, int) and one > 6 else one for one in place)
            if kind in seen or not isinstance(value_at(item, place), str):
                continue
            seen.add(kind)
            changed = [*items]
            changed[number] = with_value(item, place, f"{value_at(item, place)}{HIDING}")
            found += [
                f"{place}: {leak}" for text in texts_of(written(changed, tmp_path), capsys) if (leak := hidden_in(text))
            ]
    assert len(seen) > 100 and found == []
