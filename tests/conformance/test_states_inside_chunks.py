"""conform with states inside chunks: vLLM 0.32's recorded schedulers, and recordings that were changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from differential.tapped import TappedRun
from labengine import events as ev
from labengine.vllm.conformance.checks import violations_of
from recorded_files import written

Item = dict[str, Any]


@cache
def runs() -> list[tuple[dict[str, Any], list[Item]]]:
    return list(vllm_streams.read(vllm_streams.CHECKPOINTS_PATH))


def test_the_workloads_are_those_that_are_recorded() -> None:
    assert [workload for workload, _ in runs()] == vllm_streams.recorded_checkpoints()


def has_one_size(workload: dict[str, Any]) -> bool:
    return {group["block_size"] for group in workload["groups"]} == {workload["hash_block_size"]}


def test_the_fold_equals_vllms_own_state_and_says_what_is_inside_chunks() -> None:
    num_inside, num_inside_blocks = 0, 0
    for workload, items in runs():
        sizes = [group["block_size"] for group in workload["groups"]]
        run = TappedRun()
        assert run.take(items) is None
        (piece,) = run.reader.pieces
        starts: dict[int, int] = {}
        for event in piece.timeline.events():
            if isinstance(event, ev.RequestScheduled):
                starts[event.request_id] = event.start
            elif isinstance(event, ev.StateAdvanced) and event.start > starts[event.request_id]:
                assert event.start % workload["hash_block_size"] == 0
                num_inside += 1
                num_inside_blocks += bool(event.start % sizes[event.group])
        assert not violations_of(piece)
    assert num_inside > 20 and num_inside_blocks > 5


def test_every_recorded_stream_of_one_block_size_conforms_to_its_end(tmp_path: Path) -> None:
    editions, unjudged = set(), list[str]()
    for number, (workload, items) in enumerate(runs()):
        result = labengine.conform(written(items, tmp_path))
        if not has_one_size(workload):
            unjudged.append(result.why_unjudged.removeprefix("the engine runs with "))
            continue
        assert result and result.num_judged == result.num_events, f"{number}: {result!r}"
        assert not result.violations
        editions.add(result.edition)
    assert editions == {"vllm", "vllm-async"}
    assert unjudged == [*["hits inside a block of a state"] * 3, "checkpoints of states inside a chunk"]


def _alignment(found: object) -> Callable[[Item], None]:
    return lambda header: header["settings"].update(checkpoint_alignment=found)


@pytest.mark.parametrize("found", [None, 0, "1", True])
def test_without_an_alignment_nothing_is_judged(found: object, tmp_path: Path) -> None:
    items = json.loads(json.dumps(runs()[0][1]))
    _alignment(found)(items[0]["header"])
    result = labengine.conform(written(items, tmp_path))
    assert "checkpoints of states inside a chunk" in result.why_unjudged


def test_another_alignment_differs(tmp_path: Path) -> None:
    items = json.loads(json.dumps(runs()[0][1]))
    _alignment(1000)(items[0]["header"])
    result = labengine.conform(written(items, tmp_path))
    assert result.exit_code == 1 and result.difference is not None
