"""What the tap wrote on vLLM 0.32's own schedulers: folded, opened, asked and shown, without vLLM."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from differential.tapped import TappedRun
from labengine import events as ev
from labengine.config import ConfigError
from labengine.session.saved.trace import Trace

Item = dict[str, Any]
RUNS = list(vllm_streams.read())


def attached(items: list[Item], folder: Path, **options: Any) -> Trace:
    """Write a recorded stream into a file, and attach to it."""
    path = folder / "run.labstream"
    path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(items)))
    return labengine.attach(path, **options)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """An asynchronous run with aborts and preemptions."""
    for workload, items in RUNS:
        trace = attached(items, tmp_path)
        if workload["async"] and trace.timeline.of_kind(ev.RequestPreempted) and "aborts" in workload:
            return trace
    raise AssertionError("no recorded run has all of it")


def test_the_fold_equals_vllms_own_state_after_each_update() -> None:
    num_updates, kinds = Counter[bool](), Counter[str]()
    for workload, items in RUNS:
        run = TappedRun()
        assert run.take(items) is None, workload
        num_updates[workload["async"]] += run.num_updates
        kinds += run.kinds
    assert len(RUNS) == len(vllm_streams.RECORDED_SEEDS) and min(num_updates.values()) > 200
    assert {"RequestPreempted", "BlockTouched", "BlockEvicted", "PrefixCacheReset", "BlocksSkipped"} < set(kinds)


def test_a_change_in_a_recorded_state_is_noticed() -> None:
    """The comparison can fail."""
    _, items = RUNS[0]
    changed = json.loads(json.dumps(items))
    state = next(item["state"] for item in reversed(changed) if "state" in item)
    state["free_queue"].reverse()
    found = TappedRun().take(changed)
    assert found is not None and "free_queue" in found


# -- opened ------------------------------------------------------------------------------------------------------------


def test_the_title_names_version_scheduler_rank_and_model(trace: Trace) -> None:
    assert trace.title.startswith("vllm 0.32.0 · rank 0 · no-weights · AsyncScheduler · ")
    assert trace.facts["stream"]["gaps"] == [""] and "It ends because the engine was shut down" in trace.note
    assert trace.feed is not None and trace.view_source().note == trace.note


def test_why_names_vllms_methods_and_requests_by_their_names(trace: Trace) -> None:
    request_id = trace.timeline.of_kind(ev.RequestPreempted)[0].request_id
    trace.moment = 1 + trace.timeline.events().index(ev.RequestPreempted(request_id))
    answer = str(trace.why(request=trace.request_names[request_id]))
    assert answer == str(trace.why(request=request_id)) and "Scheduler._preempt_request" in answer
    codes = trace.facts["code"]
    assert codes["BlockFreed"]["seam"] == "BlockPool.free_blocks" and codes["BlockFreed"]["line"] > 0
    assert "vllm/v1/core/block_pool.py, line" in codes["BlockFreed"]["source"]
    freed = next(i for i, event in enumerate(trace.timeline.events()) if isinstance(event, ev.BlockFreed))
    assert "BlockPool.free_blocks" in str(trace.why(event=freed))


def test_it_can_be_walked_exported_saved_and_opened_again(trace: Trace, tmp_path: Path) -> None:
    for step in range(1, trace.fold().step + 1, 7):
        trace.goto(step)
    trace.show()
    page = trace.export_html(tmp_path / "run.html").read_text(encoding="utf-8")
    assert "AsyncScheduler" in page
    trace.save(tmp_path / "run.lab")
    again = labengine.open(tmp_path / "run.lab")
    assert (again.title, again.note, again.request_names) == (trace.title, trace.note, trace.request_names)
    assert again.snapshot() == trace.snapshot()
    with pytest.raises(ConfigError, match="a recording of a vLLM scheduler"):
        again.rerun(trust=True)


def test_a_tokenizer_gives_the_tokens_their_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tokenizer"):
        attached(RUNS[0][1], tmp_path, tokenizer=tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="the tokenizer in"):
        attached(RUNS[0][1], tmp_path, tokenizer=tmp_path)


# -- gaps and damage ---------------------------------------------------------------------------------------------------


def test_missing_messages_are_a_gap(tmp_path: Path) -> None:
    """A keyframe from the middle of the run takes the place of what is missing."""
    _, items = RUNS[0]
    messages = [item["message"] for item in items if "message" in item]
    last = next(message for message in reversed(messages) if "k" in message)
    cut = [items[0], *({"message": message} for message in (*messages[:5], last))]
    trace = attached(cut, tmp_path)
    assert f"messages 5 to {last['n'] - 1} of the stream are missing" in trace.note
    assert "piece 2 of 2" in trace.title and "without an end" in trace.note
    assert attached(cut, tmp_path, piece=1).fold().step < trace.fold().step


def test_a_stream_that_ends_in_a_gap_says_so(tmp_path: Path) -> None:
    _, items = RUNS[0]
    messages = [item for item in items if "message" in item]
    trace = attached([items[0], *messages[:5], *messages[9:12]], tmp_path)
    assert "It ends at a gap: messages 5 to 8 of the stream are missing; no keyframe followed." in trace.note


def test_a_file_that_is_still_written_opens(tmp_path: Path) -> None:
    lines = vllm_streams.lines_of(RUNS[0][1])
    path = tmp_path / "run.labstream"
    path.write_bytes(b"\n".join(lines[:20])[:-5])
    assert "in the middle of a line without an end" in labengine.attach(path).note
    path.write_bytes(lines[0] + b"\n")
    with pytest.raises(labengine.TraceError, match="no keyframe yet"):
        labengine.attach(path)


def _changed(lines: list[bytes], number: int, **changes: Any) -> list[bytes]:
    line = json.loads(lines[number])
    return [*lines[:number], json.dumps({**line, **changes}).encode(), *lines[number + 1 :]]


@pytest.mark.parametrize(
    ("number", "changes", "match"),
    [
        (0, {"format": "other"}, "is not a stream of labengine's tap"),
        (0, {"version": 9}, "has format 9, but this labengine reads 1"),
        (0, {"kinds": [["BlockExploded", "block_id"]]}, "event 'BlockExploded'"),
        (0, {"rank": "0"}, "damaged header"),
        (1, {"k": {}}, "inconsistent at message 0"),
        (1, {"k": 3}, "inconsistent at message 0"),
        (1, {"names": ["x"]}, "inconsistent at message 0"),
        (2, {"e": [[99, 1]]}, "inconsistent at message 1"),
        (2, {"e": [[-1, 1]]}, "inconsistent at message 1"),
        (2, {"e": [[9, 10**9, 0, 0, 0]]}, "inconsistent at message 1"),
        (2, {"e": [[10, 0, 0, 10**12]]}, "inconsistent at message 1"),
        (2, {"e": [[1]]}, "inconsistent at message 1"),
        (2, {"e": 7}, "inconsistent at message 1"),
        (2, {"n": "1"}, "inconsistent at message 1"),
        (3, {"n": 0}, "message 0 is repeated"),
    ],
)
def test_damage_is_refused_with_a_sentence(number: int, changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    lines = _changed(vllm_streams.lines_of(RUNS[0][1]), number, **changes)
    path = tmp_path / "run.labstream"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(labengine.TraceError, match=match):
        labengine.attach(path)


def test_a_folder_with_several_streams_names_them(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}-77-abc-0001.labstream").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"has 2 streams, newest first: .*rank\d-77-abc, .*rank"):
        labengine.attach(tmp_path)
    with pytest.raises(ConfigError, match="no stream in"):
        labengine.attach(tmp_path.parent)
    with pytest.raises(ConfigError, match="no file"):
        labengine.attach(tmp_path / "nothing")


def test_names_of_a_strangers_stream_are_one_line_of_visible_text(tmp_path: Path) -> None:
    lines = vllm_streams.lines_of(RUNS[0][1])
    lines = _changed(lines, 0, model="evil\n<script>\u202ealert</script>", engine="x\ny")
    path = tmp_path / "run.labstream"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    trace = labengine.attach(path)
    assert "\n" not in trace.title and "\u202e" not in trace.title
    page = trace.export_html(tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<script>\u202e" not in page and "evil⏎<script>" not in page
