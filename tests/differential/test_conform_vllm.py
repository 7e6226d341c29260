"""Live: vLLM 0.32's own schedulers conform to editions vllm and vllm-async, and broken copies of them do not.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_conform_vllm.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from differential.departures import refuse_departures
from differential.vllm_process import VllmProcess

NUM_WORKLOADS = 30
NUM_SWEEP_WORKLOADS = 1000
NUM_BROKEN = 12


def judged(vllm: VllmProcess, seeds: range, folder: Path, broken: str | None = None) -> Counter[str]:
    """Judge a stream for each seed; return how many conform to each edition, and the reasons of the others."""
    found, path = Counter[str](), folder / "run.labstream"
    for seed in seeds:
        workload = vllm_streams.tapped_workload(seed) | ({"broken": broken} if broken else {})
        refuse_departures(workload)
        path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(vllm.run_tapped(workload))))
        result = labengine.conform(path)
        if result:
            found[result.edition] += 1
            found["events"] += result.num_judged
        else:
            found["differs" if result.exit_code == 1 else result.why_unjudged] += 1
            print(f"workload {seed}: {result!r}")
    print(f"{len(seeds)} workloads: {dict(found)}")
    return found


@pytest.mark.timeout(600)
def test_vllm_conforms(vllm: VllmProcess, tmp_path: Path) -> None:
    found = judged(vllm, range(200, 200 + NUM_WORKLOADS), tmp_path)
    assert found["vllm"] + found["vllm-async"] == NUM_WORKLOADS and min(found["vllm"], found["vllm-async"]) > 5


def judged_late(vllm: VllmProcess, workloads: Iterable[dict[str, Any]], folder: Path, every: int) -> Counter[str]:
    """Judge streams that begin at each `every`-th keyframe; return how many conform to each edition."""
    found, path = Counter[str](), folder / "run.labstream"
    for workload in workloads:
        for items in vllm_streams.begun_late(vllm.run_tapped(workload), every):
            path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(items)))
            result = labengine.conform(path)
            assert result and result.num_judged == result.num_events, f"{workload}: {result!r}"
            found[result.edition] += 1
            found["events"] += result.num_judged
    print(dict(found))
    return found


def late_workloads(seeds: range) -> Iterator[dict[str, Any]]:
    """Yield workloads that somebody listens to from their start, or later."""
    for seed in seeds:
        yield vllm_streams.tapped_workload(seed) | {"late": seed % 4 * 6}


@pytest.mark.timeout(600)
def test_vllm_conforms_from_keyframes_on(vllm: VllmProcess, tmp_path: Path) -> None:
    found = judged_late(vllm, late_workloads(range(200, 216)), tmp_path, 11)
    assert found["vllm"] > 10 and found["vllm-async"] > 20


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_vllm_conforms_from_each_keyframe_on(vllm: VllmProcess, tmp_path: Path) -> None:
    judged_late(vllm, late_workloads(range(1000, 1060)), tmp_path, 1)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_vllm_conforms_in_a_thousand_workloads(vllm: VllmProcess, tmp_path: Path) -> None:
    found = judged(vllm, range(1000, 1000 + NUM_SWEEP_WORKLOADS), tmp_path)
    assert found["vllm"] + found["vllm-async"] == NUM_SWEEP_WORKLOADS


@pytest.mark.timeout(600)
def test_vllm_conforms_with_states_inside_chunks(vllm: VllmProcess, tmp_path: Path) -> None:
    found, path = Counter[str](), tmp_path / "run.labstream"
    for seed in range(600, 600 + NUM_WORKLOADS):
        items = vllm.run_tapped(vllm_streams.checkpoint_stream_workload(seed))
        path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(items)))
        result = labengine.conform(path)
        assert result and result.num_judged == result.num_events, f"{seed}: {result!r}"
        found[result.edition] += 1
    assert found.keys() == {"vllm", "vllm-async"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", vllm_streams.RECORDED_KINDS)
def test_vllm_conforms_with_drafts_priorities_and_states(kind: str, vllm: VllmProcess, tmp_path: Path) -> None:
    """Where priorities leave hashes of blocks that were never computed, both do the same: scenario vllm-43569."""
    found, path = Counter[str](), tmp_path / "run.labstream"
    for seed in range(600, 600 + NUM_WORKLOADS):
        items = vllm.run_tapped(vllm_streams.kinds_workload(kind, seed))
        path.write_bytes(b"".join(line + b"\n" for line in vllm_streams.lines_of(items)))
        result = labengine.conform(path)
        assert result.difference is None and not result.why_unjudged, f"{kind} {seed}: {result!r}"
        assert not result.violations or "priority" in result.edition, f"{kind} {seed}: {result!r}"
        found[result.edition] += 1
        found["breaks a rule"] += bool(result.violations)
    print(f"{NUM_WORKLOADS} workloads of {kind}: {dict(found)}")
    assert len(found) > 2


@pytest.mark.parametrize("name", vllm_streams.BROKEN_RUNS)
def test_broken_copies_differ(name: str, vllm: VllmProcess, tmp_path: Path) -> None:
    found = judged(vllm, range(1, 1 + NUM_BROKEN), tmp_path, name)
    assert found["differs"] >= NUM_BROKEN // 2
    assert found["differs"] + found["vllm"] + found["vllm-async"] == NUM_BROKEN
