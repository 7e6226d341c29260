"""Files that are damaged, foreign or too new are refused with an error message, whatever they contain."""

from __future__ import annotations

import gzip
import json
import pickle
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grounds import Ground
from labengine import events as ev
from labengine.config import ConfigError
from labengine.record.files.file import SavedRun, open_file, save
from labengine.record.files.parsing import TraceError
from labengine.record.files.sequence import SequenceCheck
from labengine.record.fold import Fold
from labengine.record.wording import visible
from random_cases import UNHURRIED
from recordings import FACTS, recording, saved

QUICK = settings(UNHURRIED, max_examples=150)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@cache
def sound() -> bytes:
    """A file with several segments and a tier."""
    with TemporaryDirectory() as folder:
        return saved(recording(Ground("labengine", True, "prompt"), 1), Path(folder) / "sound.lab").raw


def opened(folder: Path, content: bytes) -> SavedRun:
    path = folder / "some.lab"
    path.write_bytes(content)
    return open_file(path)


def everything(run: SavedRun) -> tuple[Any, ...]:
    """A file's complete content, decoded."""
    timeline = run.timeline
    states = [timeline.state(m).snapshot() for m in range(timeline.num_dropped, timeline.end, 97)]
    return timeline.events(), states, timeline.state().snapshot(), run.facts, run.texts, timeline.step_seconds


mutations = st.lists(
    st.tuples(
        st.sampled_from(("flip", "insert", "delete", "double")), st.floats(0, 1), st.binary(min_size=1, max_size=8)
    ),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for way, where, text in changes:
        at = int(where * len(content))
        before, after = content[:at], content[at:]
        content = {
            "flip": before + text + after[len(text) :],
            "insert": before + text + after,
            "delete": before + after[len(text) :],
            "double": before + before[-9:] + after,
        }[way]
    return content


@given(mutations)
@QUICK
def test_any_change_of_bytes_is_noticed_or_changes_nothing(
    folder: Path, changes: list[tuple[str, float, bytes]]
) -> None:
    try:
        found = everything(opened(folder, mutated(sound(), changes)))
    except TraceError:
        return
    assert found == everything(opened(folder, sound()))


@given(mutations)
@QUICK
def test_a_change_under_a_valid_checksum_is_no_other_error(
    folder: Path, changes: list[tuple[str, float, bytes]]
) -> None:
    """A file written by hand: it opens as something else, or is refused at once."""
    lines = mutated(gzip.decompress(sound()), changes)
    try:
        run = opened(folder, gzip.compress(lines, 1))
    except TraceError:
        return
    assert len(run.timeline.events()) == run.timeline.end - run.timeline.num_dropped
    everything(run)


@given(st.floats(0, 1, exclude_max=True))
@QUICK
def test_a_truncated_file_is_refused(folder: Path, where: float) -> None:
    with pytest.raises(TraceError):
        opened(folder, sound()[: int(where * len(sound()))])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\x1f\x8b",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"hello\nthere", mtime=0),
        gzip.compress(b'{"format": "something else"}', mtime=0),
        gzip.compress(b'{"format": "labengine trace"}\n{}', mtime=0),
        gzip.compress(json.dumps({"a": 1}).encode(), mtime=0),
        pickle.dumps({"format": "labengine trace"}),
        gzip.compress(b'{"format":' + b"[" * 100_000, mtime=0),
    ],
)
def test_what_is_foreign_is_refused(folder: Path, content: bytes) -> None:
    with pytest.raises(TraceError, match=r"some\.lab"):
        opened(folder, content)


def changed_header(**changes: Any) -> bytes:
    header, body = gzip.decompress(sound()).split(b"\n", 1)
    return gzip.compress(json.dumps(json.loads(header) | changes, separators=(",", ":")).encode() + b"\n" + body)


def test_a_newer_format_says_what_to_do(folder: Path) -> None:
    with pytest.raises(TraceError, match=r"format 2, .* reads 1: open it with .* a newer one"):
        opened(folder, changed_header(version=2))


@pytest.mark.parametrize(
    "segments",
    [
        [],
        [[0, 1, 0, 0]],
        [[1, 0, 0, 0]],
        [[-1, 5, 0, 0]],
        [[0, 5, 0, 0], [6, 9, 0, 0]],
        [["0", 1, 0, 0]],
        None,
        [[0, 1]],
    ],
)
def test_segments_must_adjoin(folder: Path, segments: Any) -> None:
    with pytest.raises(TraceError):
        everything(opened(folder, changed_header(segments=segments)))


def test_an_event_of_the_future_says_what_to_do(folder: Path) -> None:
    kinds = json.loads(gzip.decompress(sound()).split(b"\n", 1)[0])["kinds"]
    with pytest.raises(TraceError, match="event 'BlockMelted': open the trace with a newer"):
        opened(folder, changed_header(kinds=[*kinds, ["BlockMelted"]]))


@pytest.mark.parametrize("row", [None, [], {}, "ab", [None], [-1, 5], [999, 5], [1, "x"]])
def test_damaged_rows_of_another_version_are_refused(folder: Path, row: Any) -> None:
    header, *lines = gzip.decompress(sound()).split(b"\n")
    kinds = json.loads(header)["kinds"]
    header = json.dumps(json.loads(header) | {"kinds": [*reversed(kinds)]}).encode()
    rows = [[len(kinds) - 1 - number, *values] for number, *values in json.loads(lines[4])]
    lines[4] = json.dumps([row, *rows[1:]]).encode()
    with pytest.raises(TraceError, match="download it again"):
        opened(folder, gzip.compress(b"\n".join([header, *lines])))


def test_events_that_contradict_one_another_are_refused(folder: Path) -> None:
    lines = gzip.decompress(sound()).split(b"\n")
    rows = json.loads(lines[5])
    lines[5] = json.dumps([*rows[:4], *reversed(rows[4:])]).encode()
    with pytest.raises(TraceError, match=r"events 0 to \d+ \(no request 5\)"):
        opened(folder, gzip.compress(b"\n".join(lines)))


def test_a_step_before_its_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="step 1 begins"):
        SequenceCheck(Fold()).follow([(ev.EVENT_KINDS.index(ev.StepStarted), 1)])


def test_missing_and_unreadable_files(folder: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.lab cannot be read: No such file"):
        open_file(folder / "nowhere.lab")
    with pytest.raises(TraceError, match="it is a folder"):
        open_file(folder)
    for name in (5, None, "a\0b"):
        with pytest.raises(TraceError, match="cannot be read"):
            open_file(name)  # type: ignore[arg-type]
    assert issubclass(TraceError, ConfigError)


HOSTILE = "</script><script>alert(1)</script>\n\r\u2028\x00\ud800 ' \" \\ {} é 漢 \U0001f600"


def test_hostile_texts_stay_text(folder: Path) -> None:
    path = folder / "hostile.lab"
    save(path, recording(Ground("labengine"), 1), FACTS | {"title": HOSTILE}, lambda token_id: HOSTILE)
    run = open_file(path)
    assert run.facts["title"] == HOSTILE
    assert set(run.texts.values()) == {visible(HOSTILE)} != {HOSTILE}, "what hides other text is a sign or a dot"
