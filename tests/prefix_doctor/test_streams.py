"""The doctor on streams that were recorded on vLLM's own schedulers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from differential import vllm_streams
from labengine.__main__ import main
from labengine.events import PrefixHit
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.reader import LiveReader
from recorded_engines import diagnosis_without_runs, recorded_engine
from recorded_files import written

RUNS = list(vllm_streams.read())


def test_every_token_of_recorded_prompts_has_its_cause(tmp_path: Path) -> None:
    """Fixed sums: another figure is another verdict on vLLM's look-ups."""
    sums, verdicts = Counter[str](), Counter[str]()
    for _, items in RUNS:
        path = written(items, tmp_path)
        found, events = diagnosis_without_runs(path), recorded_engine(path).events
        hits = [event.num_tokens for event in events if isinstance(event, PrefixHit)]
        assert [one.num_hit for one in found.look_ups] == hits
        verdicts.update(one.verdict for one in found.look_ups)
        for one in (found.sums, found.report.sums_again):
            assert one.num_hit + sum(one.missed.values()) == one.num_tokens
            sums.update({"hit": one.num_hit, **one.missed})
    assert sums == {
        "hit": 641,
        "new": 629,
        "tail": 486,
        "evicted": 405,
        "never_registered": 104,
        "not_registered_yet": 103,
        "other_salt": 85,
        "short_of_a_block": 68,
        "reset": 60,
    }
    assert verdicts["evicted"] == 43 and verdicts["hit"] == 21 and verdicts.total() == 167


def test_vllms_own_names_and_seconds_are_in_the_sentences(tmp_path: Path) -> None:
    sentences = [
        one.sentence for _, items in RUNS[::4] for one in diagnosis_without_runs(written(items, tmp_path)).look_ups
    ]
    evicted = [one for one in sentences if "were evicted" in one]
    assert any(" s) by " in one and "'s prefill" in one for one in evicted), evicted[:5]


def test_the_command_prints_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(RUNS[0][1], tmp_path))
    assert main(["doctor", path]) == 0
    assert "A hit ends after a multiple of" in capsys.readouterr().out
    assert main(["doctor", path, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    num_look_ups = printed["sums"]["num_look_ups"] + printed["sums_again"]["num_look_ups"]
    assert len(printed["look_ups"]) == num_look_ups
    assert main(["doctor", str(tmp_path / "nothing")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_stream_with_a_gap_is_examined_piece_by_piece(tmp_path: Path) -> None:
    _, items = RUNS[4]
    events = [i for i, one in enumerate(items) if "e" in one.get("message", {})]
    cut = [one for i, one in enumerate(items) if i != events[len(events) // 3]]
    complete, found = (diagnosis_without_runs(written(one, tmp_path)) for one in (items, cut))
    assert 0 < len(found.look_ups) < len(complete.look_ups)
    assert found.look_ups == complete.look_ups[: len(found.look_ups)]
    assert "are missing" in found.report.notes[0] and found.report.title == complete.report.title


@pytest.mark.parametrize(("path", "cause"), [(vllm_streams.KINDS_PATH, "dropped"), (vllm_streams.PATH, "other_salt")])
def test_a_running_engine_is_examined_like_its_file(path: Path, cause: str, tmp_path: Path) -> None:
    _, items = next(iter(vllm_streams.read(path)))
    found, of_live = (diagnosis_without_runs(one).look_ups for one in (written(items, tmp_path), live(items)))
    assert [one.misses for one in of_live] == [one.misses for one in found]
    assert cause in {miss.cause for one in found for miss in one.misses}


def live(items: list[dict[str, Any]]) -> LiveStream:
    """Return a recorded stream as a running engine sends it."""
    reader, lines = LiveReader("unix:/tmp/tap", Timeline(100_000), Hooks(), 1 << 24), iter(vllm_streams.lines_of(items))
    while not reader.pieces:
        reader.take(next(lines))
    stream = LiveStream(Mock(place="unix:/tmp/tap"), reader, lines, str)
    assert stream.wait(30)
    return stream
