"""conform of what `attach --record` leaves: recorded on vLLM 0.32's schedulers, read as a live stream is, and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from labengine import events as ev
from labengine.__main__ import main
from labengine.record.files.file import save
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.vllm.stream.description import facts_of
from labengine.vllm.stream.reader import LiveReader
from recorded_files import written

Item = dict[str, Any]
RUNS = list(vllm_streams.read())
SYNC, ASYNC = (next(items for workload, items in RUNS if workload["async"] is flag) for flag in (False, True))
LATE = [*vllm_streams.begun_late(next(vllm_streams.read(vllm_streams.LATE_PATH))[1])][6]
BROKEN = next(vllm_streams.read(vllm_streams.BROKEN_PATH))[1]


def saved(items: list[Item], folder: Path, max_events: int = 100_000, max_finished: int = 1000) -> Path:
    """Read a stream as a viewer of a running engine does, and save it."""
    live = LiveReader("unix:/tmp/tap", Timeline(max_events), Hooks(), 1 << 30, max_finished)
    path = folder / "run.lab"
    for line in vllm_streams.lines_of(items):
        live.take(line)
    save(path, live.timeline, facts_of(live, live.newest, "a note"), str)
    return path


@pytest.mark.parametrize("items", [SYNC, ASYNC, LATE, BROKEN], ids=["sync", "async", "late", "broken"])
def test_it_is_judged_as_its_stream(items: list[Item], tmp_path: Path) -> None:
    """A live stream forgets finished requests, which is no event of vLLM's."""
    stream, recording = labengine.conform(written(items, tmp_path)), saved(items, tmp_path, max_finished=1)
    assert items is BROKEN or labengine.open(recording).timeline.of_kind(ev.RequestForgotten)
    result = labengine.conform(recording)
    assert result.to_dict() == stream.to_dict() and result.num_judged == stream.num_judged > 50
    assert main(["conform", str(recording)]) == (1 if items is BROKEN else 0)


def test_a_recording_that_was_let_go_is_judged_to_its_end(tmp_path: Path) -> None:
    result = labengine.conform(saved(SYNC[:-9], tmp_path))
    assert result.exit_code == 0 and 50 < result.num_judged == result.num_events
    assert "The recording ended while vLLM was running, and is judged up to its end." in repr(result)


def test_a_gap_is_never_taken_for_conformance(tmp_path: Path) -> None:
    messages = [item for item in SYNC if "message" in item]
    result = labengine.conform(saved([SYNC[0], *messages[:5], *messages[8:9]], tmp_path))
    assert result.exit_code == 2 and "a gap (messages 5 to" in result.why_unjudged


def test_attach_writes_files_that_are_judged(tmp_path: Path) -> None:
    assert main(["attach", str(written(ASYNC, tmp_path)), "--record", str(tmp_path / "run.lab")]) == 0
    assert labengine.conform(tmp_path / "run.lab")
    assert labengine.doctor(tmp_path / "run.lab").report.curves


def test_what_cannot_be_judged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(labengine.ConfigError, match="record with a larger --max-events"):
        labengine.conform(saved(SYNC, tmp_path, max_events=60))
    lab = labengine.Lab("simulated", num_blocks=8, block_size=4)
    lab.save(tmp_path / "lab.lab")
    with pytest.raises(labengine.ConfigError, match="of a lab, or of an earlier release's attach"):
        labengine.conform(tmp_path / "lab.lab")
    path = saved(SYNC, tmp_path)
    trace = labengine.open(path)
    trace.facts["stream"]["judged_by"]["inputs"] = [[1, "abort", "x"]]
    save(path, trace.timeline, trace.facts, str)
    with pytest.raises(labengine.ConfigError, match="does not name its source"):
        labengine.conform(path)
