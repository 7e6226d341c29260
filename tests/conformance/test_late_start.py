"""conform from a keyframe in the middle: recorded on vLLM 0.32's schedulers with a keyframe before each step."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from labengine import events as ev
from labengine.record.files.file_access import Limits
from labengine.vllm.conformance.recorded import read
from recorded_files import written

Item = dict[str, Any]
RUNS = list(vllm_streams.read(vllm_streams.LATE_PATH))
SOUND = [(workload, items) for workload, items in RUNS if "broken" not in workload]
BROKEN = [(workload["broken"], items) for workload, items in RUNS if "broken" in workload]


@pytest.mark.parametrize(("workload", "items"), SOUND, ids=[str(number) for number, _ in enumerate(SOUND)])
def test_a_stream_conforms_from_its_keyframes(workload: Item, items: list[Item], tmp_path: Path) -> None:
    num_judged = []
    for late in vllm_streams.begun_late(items, 6):
        result = labengine.conform(written(late, tmp_path))
        assert result.exit_code == 0 and result.num_judged == result.num_events and not result.violations, repr(result)
        num_judged.append(result.num_judged)
    assert num_judged == sorted(num_judged, reverse=True) and num_judged[1] > 50


def test_the_recordings_have_what_is_hard(tmp_path: Path) -> None:
    """Hits of content that the recording did not see, and duplicates of it; steps that were scheduled before."""
    found = Counter[str]()
    for workload, items in SOUND:
        late = [*vllm_streams.begun_late(items)][9]
        piece = read(written(late, tmp_path), Limits("a stream"), 1_000_000).piece
        _, first, events = piece.timeline.kept()
        unknown = {i for i, keys in enumerate(first.block_keys) if keys and not first.block_tokens[i]}
        found.update("hit" for one in events if isinstance(one, ev.BlockTouched) and one.block_id in unknown)
        found.update("twin" for one in events if isinstance(one, ev.BlockCached) and unknown.intersection(one.mapped))
        found.update("preempted" for one in events if isinstance(one, ev.RequestPreempted))
        found.update(one.word for one in piece.inputs if one.word != "earlier" or (one.values[0] or 0) <= first.step)
        found["window"] += any(group.window is not None for group in first.groups)
        found["priority"] += workload.get("policy") == "priority"
    assert all(found[name] for name in ("hit", "twin", "preempted", "earlier", "links", "window", "priority")), found


@pytest.mark.parametrize(("name", "items"), BROKEN, ids=[name for name, _ in BROKEN])
def test_a_broken_vllm_is_named_from_the_first_keyframes(name: str, items: list[Item], tmp_path: Path) -> None:
    first, second, *_ = vllm_streams.begun_late(items, 2)
    whole, late = (labengine.conform(written(one, tmp_path)) for one in (first, second))
    assert whole.difference is not None and late.difference is not None and late.exit_code == 1
    assert "decisions before step" in repr(late) and "late" not in repr(whole)
    names = late.difference.recorded.method, whole.difference.recorded.method
    assert names[0] == names[1] or name == "youngest first"
    assert late.difference.step >= whole.difference.step and late.compare().first_difference() is not None


def test_a_hit_of_what_no_request_has_looked_up_is_a_difference(tmp_path: Path) -> None:
    """What a cached block held before, only the request that looks it up tells: no other hit is believed."""
    _, items = SOUND[3]
    late: list[Item] = json.loads(json.dumps([*vllm_streams.begun_late(items)][18]))
    assert labengine.conform(written(late, tmp_path))
    for item in late:
        message = item.get("message", {})
        message["inputs"] = [one for one in message.get("inputs", ()) if one[1] != "links"]
        for row in message.get("k", {}).get("calls", ()):
            row[9] = []
    found = labengine.conform(written(late, tmp_path)).difference
    assert found is not None and isinstance(found.recorded.event, ev.PrefixHit)


def _without_calls(item: Item) -> None:
    del item["message"]["k"]["calls"]


def _with_another_queue(item: Item) -> None:
    item["message"]["k"]["running"] *= 2


def _with_an_adapter(item: Item) -> None:
    item["message"]["k"]["calls"][0][6] = "request cmpl-3 has a LoRA adapter"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_without_calls, "record it with this release's tap"),
        (_with_another_queue, "the queues of its first keyframe"),
        (_with_an_adapter, "request cmpl-3 has a LoRA adapter"),
    ],
)
def test_what_a_keyframe_does_not_say_is_not_judged(change: Any, why: str, tmp_path: Path) -> None:
    late: list[Item] = json.loads(json.dumps([*vllm_streams.begun_late(SOUND[0][1])][6]))
    change(late[1])
    result = labengine.conform(written(late, tmp_path))
    assert result.exit_code == 2 and result.num_judged == 0 and why in result.why_unjudged


@pytest.mark.parametrize(
    ("kind", "why"), [("speculation", "which drafts are being judged"), ("states", "which states its blocks hold")]
)
def test_drafts_and_states_are_refused(kind: str, why: str, tmp_path: Path) -> None:
    runs = zip(vllm_streams.recorded_kinds(), vllm_streams.read(vllm_streams.KINDS_PATH), strict=True)
    items = next(items for (one, _), (_, items) in runs if one == kind)
    *_, last = vllm_streams.begun_late(items)
    result = labengine.conform(written(last, tmp_path))
    assert result.exit_code == 2 and why in result.why_unjudged


def test_traffic_of_a_late_stream_is_not_run_again(tmp_path: Path) -> None:
    late = [*vllm_streams.begun_late(SOUND[0][1])][6]
    with pytest.raises(labengine.ConfigError, match="begins late and lacks the earlier requests"):
        labengine.conform(written(late, tmp_path)).against("vllm")


def test_a_keyframe_of_other_types_is_damaged(tmp_path: Path) -> None:
    late: list[Item] = json.loads(json.dumps([*vllm_streams.begun_late(SOUND[0][1])][6]))
    for value in ([[0]], "running", [[0, 1, "", 0.0, False, 0, "", [0], [0, 0], []]]):
        late[1]["message"]["k"]["calls"] = value
        with pytest.raises(labengine.ConfigError, match="inconsistent at message"):
            labengine.conform(written(late, tmp_path))
