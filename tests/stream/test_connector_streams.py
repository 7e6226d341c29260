"""What a connector does in vLLM 0.32, recorded: folded, judged, asked and shown, without vLLM."""

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
from labengine.session.saved.trace import Trace
from labengine.vllm.conformance.checks import violations_of
from labengine.vllm.stream.pieces import Piece
from labengine_widgets.why.past import Past
from labengine_widgets.why.waiting import why_waiting
from labengine_widgets.words.captions import captions_of
from labengine_widgets.words.phrases import phrase

Item = dict[str, Any]
RUNS = list(vllm_streams.read(vllm_streams.CONNECTOR_PATH))
OF_CONNECTORS: tuple[type[ev.Event], ...] = (
    ev.ExternalHit,
    ev.BlocksLoaded,
    ev.LoadFailed,
    ev.RequestReleased,
    ev.FreeDeferred,
    ev.BlockPinned,
    ev.BlockUnpinned,
)


def piece_of(items: list[Item]) -> Piece:
    run = TappedRun()
    assert run.take(items) is None
    (piece,) = run.reader.pieces
    return piece


def attached(items: list[Item], folder: Path) -> Trace:
    path = folder / "run.labstream"
    path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(items)))
    return labengine.attach(path)


def one_with(folder: Path, *kinds: type[ev.Event]) -> Trace:
    """Return the first recording that has all of these kinds of events."""
    for _, items in RUNS:
        trace = attached(items, folder)
        if all(trace.timeline.of_kind(kind) for kind in kinds):
            return trace
    raise AssertionError("no recorded run has all of it")


def answer(trace: Trace, moment: int, **about: Any) -> str:
    trace.moment = moment
    return " ".join(str(trace.why(**about)).split())


def test_the_fold_equals_vllm_and_the_oracle_finds_nothing_wrong() -> None:
    kinds = Counter[type[ev.Event]]()
    for workload, items in RUNS:
        piece = piece_of(items)
        assert violations_of(piece) == [], workload
        kinds.update(map(type, piece.timeline.events()))
    assert len(RUNS) == len(vllm_streams.RECORDED_CONNECTOR_SEEDS)
    assert all(kinds[kind] >= 4 for kind in OF_CONNECTORS), kinds


def test_the_oracle_notices_a_load_that_is_left_out() -> None:
    """It can fail: what was not loaded holds nothing."""
    for _, items in RUNS:
        without = json.loads(json.dumps([item for item in items if "state" not in item]))
        number = [name for name, *_ in without[0]["header"]["kinds"]].index("BlocksLoaded")
        for item in without:
            if "message" in item and "e" in item["message"]:
                item["message"]["e"] = [row for row in item["message"]["e"] if row[0] != number]
                item["message"]["inputs"] = []
        run = TappedRun()
        run.take(without)
        if any(one.rule == "read" for one in violations_of(run.reader.pieces[0])):
            return
    raise AssertionError("no load was missed")


def test_conform_says_that_it_does_not_judge_a_connector(tmp_path: Path) -> None:
    attached(RUNS[0][1], tmp_path)
    result = labengine.conform(tmp_path / "run.labstream")
    assert result.exit_code == 2 and "a KV connector" in str(result)


def test_each_event_has_its_sentence_and_a_cause(tmp_path: Path) -> None:
    for _, items in RUNS[:3]:
        trace = attached(items, tmp_path)
        end = trace.timeline.end
        assert len(captions_of(trace.timeline, 0, end)) > 10
        trace.moment = end
        for number, event in enumerate(trace.timeline.events()):
            if isinstance(event, OF_CONNECTORS):
                assert "happens" not in phrase(event)
                text = str(trace.why(event=number))
                assert "Nothing in the recording" not in text or isinstance(event, ev.RequestReleased), text


def test_why_a_request_waits_during_and_after_its_load(tmp_path: Path) -> None:
    trace = one_with(tmp_path, ev.BlocksLoaded)
    events = trace.timeline.events()
    for hit in trace.timeline.of_kind(ev.ExternalHit):
        ids = [i for i, event in enumerate(events) if event == hit]
        if hit.is_loading:
            during = why_waiting(Past(trace.timeline, ids[0] + 1), hit.request_id)
            assert "is loading" in str(during)
            break
    else:
        raise AssertionError("no load is late")
    loaded = next(i for i, event in enumerate(events) if isinstance(event, ev.BlocksLoaded) and i > ids[0])
    event = events[loaded]
    assert isinstance(event, ev.BlocksLoaded)
    after = str(why_waiting(Past(trace.timeline, loaded + 1), event.request_id))
    assert "Its load has ended" in after


def test_why_a_finished_request_and_its_blocks_are_held(tmp_path: Path) -> None:
    trace = one_with(tmp_path, ev.RequestReleased)
    events = trace.timeline.events()
    moment = 1 + next(i for i, one in enumerate(events) if isinstance(one, ev.RequestFinished) and one.holds_blocks)
    event = events[moment - 1]
    assert isinstance(event, ev.RequestFinished)
    state = trace.timeline.state(moment)
    held = [i for table in state.requests[event.request_id].block_tables for i in table if i != state.null_block]
    assert f"still holds {len(held)} block" in answer(trace, moment, request=event.request_id)
    released = 1 + events.index(ev.RequestReleased(event.request_id))
    assert "until the connector was done" in answer(trace, released, request=event.request_id)
    freed = next(i for i in range(moment, released) if isinstance(events[i], ev.BlockFreed))
    assert f"event {moment - 1}" in answer(trace, released, event=freed)


def test_why_a_block_in_no_table_is_in_use(tmp_path: Path) -> None:
    trace = one_with(tmp_path, ev.FreeDeferred)
    events = trace.timeline.events()
    number = next(i for i, event in enumerate(events) if isinstance(event, ev.FreeDeferred))
    deferred = events[number]
    assert isinstance(deferred, ev.FreeDeferred)
    block_id = deferred.block_ids[-1]
    assert "has given it up" in answer(trace, number + 1, block=block_id)
    unpinned = next(
        i
        for i, event in enumerate(events)
        if i > number and isinstance(event, ev.BlockUnpinned) and event.block_id == block_id
    )
    text = answer(trace, unpinned + 1, event=unpinned)
    assert "gives up" in text and f"event {number}" in text


def test_it_is_saved_exported_and_walked(tmp_path: Path) -> None:
    trace = one_with(tmp_path, ev.RequestReleased, ev.BlockPinned)
    moment = next(
        1 + i
        for i in range(trace.timeline.end)
        if trace.timeline.state(i + 1).pins and trace.timeline.state(i + 1).holding
    )
    trace.save(tmp_path / "run.lab")
    again = labengine.open(tmp_path / "run.lab")
    assert again.timeline.state(moment).snapshot() == trace.timeline.state(moment).snapshot()
    assert again.timeline.state(moment).pins and again.snapshot() == trace.snapshot()
    trace.goto(1)
    trace.show()
    assert "Scheduler" in trace.export_html(tmp_path / "run.html").read_text(encoding="utf-8")


def test_a_stream_of_an_earlier_tap_is_read(tmp_path: Path) -> None:
    """Its rows lack the newer fields, and its header the newer kinds."""
    _, items = next(iter(vllm_streams.read()))
    older = json.loads(json.dumps(items))
    kinds = older[0]["header"]["kinds"]
    number = [name for name, *_ in kinds].index("RequestFinished")
    assert kinds[number].pop() == "holds_blocks"
    for item in older:
        for row in item.get("message", {}).get("e", ()):
            if row[0] == number:
                assert row.pop() is False
        for name in ("pins", "holding"):
            item.get("message", {}).get("k", {}).pop(name, None)
    assert attached(older, tmp_path).snapshot() == piece_of(items).fold.snapshot()


@pytest.mark.parametrize(("name", "value"), [("pins", [[10**9, 1]]), ("pins", [[1, -1]]), ("holding", ["a"])])
def test_damage_in_the_newer_lists_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    changed = json.loads(json.dumps(RUNS[0][1]))
    next(item["message"]["k"] for item in changed if "k" in item.get("message", ()))[name] = value
    with pytest.raises(labengine.TraceError, match="inconsistent at message 0"):
        attached(changed, tmp_path)
