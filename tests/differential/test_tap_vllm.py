"""Live: the tap on vLLM 0.32's own schedulers; the fold of its events equals vLLM's state after each update.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_tap_vllm.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from differential import vllm_streams
from differential.tapped import TappedRun
from differential.vllm_process import VARIABLE, VERSION, VllmProcess, named_interpreter

NUM_WORKLOADS = 30
NUM_SWEEP_WORKLOADS = 1000


@pytest.fixture(scope="module")
def vllm() -> Iterator[VllmProcess]:
    python = named_interpreter()
    if python is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}; its recorded streams were read")
    with VllmProcess(python) as process:
        yield process


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


def test_the_recorded_streams_are_what_vllm_does_now(vllm: VllmProcess) -> None:
    """They were recorded with this tap."""
    for (workload, items), _ in zip(vllm_streams.read(), range(4), strict=False):
        now = [vllm_streams.timeless(item) for item in vllm.run_tapped(workload)]
        assert json.loads(json.dumps(now)) == items
