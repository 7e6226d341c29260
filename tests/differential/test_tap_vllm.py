"""Live: the tap on schedulers of each vLLM that it knows; the fold of its events equals vLLM's state after each update.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_tap_vllm.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice

import pytest

from differential import vllm_streams
from differential.tapped import TappedRun
from differential.vllm_process import VERSION, VllmProcess
from labengine import events as ev
from labengine.vllm.conformance.checks import violations_of
from labengine_vllm.engine import KNOWN_VERSIONS

NUM_WORKLOADS = 30
NUM_SWEEP_WORKLOADS = 1000
VERSIONS = KNOWN_VERSIONS
OF_CONNECTORS = (
    "ExternalHit",
    "BlocksLoaded",
    "LoadFailed",
    "RequestReleased",
    "FreeDeferred",
    "BlockPinned",
    "BlockUnpinned",
)


def compare_with_connector(vllm: VllmProcess, seeds: range) -> None:
    """Hold the fold against vLLM's state, and the oracle against the reads. No piece ends."""
    num_updates, kinds = Counter[bool](), Counter[str]()
    for seed in seeds:
        workload, run = vllm_streams.connector_workload(seed), TappedRun()
        difference = run.take(vllm.run_tapped(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        num_updates[workload["async"]] += run.num_updates
        kinds += run.kinds
        (piece,) = run.reader.pieces
        found = [one for one in violations_of(piece) if not vllm_streams.loads_complete_prompts(workload)]
        assert not found, f"workload {seed}: {found[0]}\n{workload}"
    assert num_updates[False] and num_updates[True]
    assert all(kinds[name] > len(seeds) // 10 for name in OF_CONNECTORS), kinds
    print(f"{len(seeds)} workloads, updates by asynchronous {dict(num_updates)}, fold equal after each; {dict(kinds)}")


def compare(vllm: VllmProcess, seeds: range) -> None:
    num_updates, kinds = Counter[bool](), Counter[str]()
    for seed in seeds:
        workload, run = vllm_streams.tapped_workload(seed), TappedRun()
        difference = run.take(vllm.run_tapped(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        num_updates[workload["async"]] += run.num_updates
        kinds += run.kinds
    assert kinds["RequestPreempted"] > len(seeds) and num_updates[False] and num_updates[True]
    print(f"{len(seeds)} workloads, updates by asynchronous {dict(num_updates)}, fold equal after each; {dict(kinds)}")


@pytest.mark.timeout(600)
def test_the_fold_equals_vllm_after_each_update(vllm: VllmProcess) -> None:
    compare(vllm, range(100, 100 + NUM_WORKLOADS))


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_the_fold_equals_vllm_after_each_update_of_a_thousand_workloads(vllm: VllmProcess) -> None:
    compare(vllm, range(1000, 1000 + NUM_SWEEP_WORKLOADS))


@pytest.mark.timeout(600)
def test_the_fold_equals_vllm_with_a_connector(vllm: VllmProcess) -> None:
    """Loads at once and late, some failing; delayed sends, deferred frees, aborts during loads, pinned blocks."""
    compare_with_connector(vllm, range(1000, 1000 + NUM_WORKLOADS))


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_the_fold_equals_vllm_with_a_connector_in_five_hundred_workloads(vllm: VllmProcess) -> None:
    compare_with_connector(vllm, range(2000, 2500))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", vllm_streams.RECORDED_KINDS)
def test_the_fold_equals_vllm_with_drafts_priorities_and_states(kind: str, vllm: VllmProcess) -> None:
    """Tables, ref counts, queue, map, tokens and drafts after each update, synchronous and asynchronous."""
    if not vllm.version.startswith(VERSION + "."):
        pytest.skip(f"tried on vLLM {VERSION}")
    for seed in range(500, 500 + NUM_WORKLOADS):
        workload, run = vllm_streams.kinds_workload(kind, seed), TappedRun()
        difference = run.take(vllm.run_tapped(workload))
        assert difference is None, f"{kind} {seed}: {difference}\n{workload}"


def test_the_fold_equals_vllm_with_speculative_tokens(vllm: VllmProcess) -> None:
    """Rejected ones are scheduled, and not computed: their slots are written again."""
    num_taken_back = 0
    for seed in range(300, 320):
        workload, run = vllm_streams.tapped_workload(seed) | {"async": False, "drafts": seed}, TappedRun()
        difference = run.take(vllm.run_tapped(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        (piece,) = run.reader.pieces
        num_taken_back += count_rejections(piece.timeline.events())
    print(f"{num_taken_back} steps of requests took speculative tokens back")
    assert num_taken_back > 100


def count_rejections(events: Iterable[ev.Event]) -> int:
    """Return how often fewer tokens were computed than scheduled."""
    ends: dict[int, int] = {}
    num_found = 0
    for event in events:
        if isinstance(event, ev.RequestScheduled):
            ends[event.request_id] = event.start + event.num_tokens
        elif isinstance(event, ev.TokensComputed):
            num_found += event.num_computed_tokens < ends[event.request_id]
    return num_found


def test_the_recorded_streams_are_what_vllm_does_now(vllm: VllmProcess) -> None:
    """They were recorded with this tap, on the release whose version and lines their headers name."""
    if not vllm.version.startswith(VERSION + "."):
        pytest.skip(f"the streams are of vLLM {VERSION}")
    connected = vllm_streams.read(vllm_streams.CONNECTOR_PATH)
    kinds, late = vllm_streams.read(vllm_streams.KINDS_PATH), vllm_streams.read(vllm_streams.LATE_PATH)
    recorded = *islice(vllm_streams.read(), 4), *islice(connected, 4), *islice(kinds, 0, None, 4), *islice(late, 3)
    for workload, items in recorded:
        now = [vllm_streams.timeless(item) for item in vllm.run_tapped(workload)]
        assert json.loads(json.dumps(now)) == items
