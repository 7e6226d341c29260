"""The doctor's player finds and computes, for each request of a traffic, what vLLM 0.32's own scheduler does.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest -m "sweep or not sweep" tests/differential/test_traffic_vllm.py
"""

from __future__ import annotations

from typing import Any

import pytest

from differential import vllm_traffics
from differential.traffic import played, simulated
from differential.vllm_process import VERSION, VllmProcess
from seeds import one_in
from vllm_traffic_workloads import traffic_workload

NUM_TRAFFICS = 500

RECORDED: dict[str, dict[str, Any]] = vllm_traffics.recorded()["random"]


@pytest.mark.parametrize("part", range(6))
def test_the_player_finds_and_computes_what_was_recorded_of_vllm(part: int) -> None:
    for seed in vllm_traffics.RECORDED_SEEDS[part::6]:
        assert played(traffic_workload(seed)) == RECORDED[str(seed)], seed


def test_simulate_finds_and_computes_what_was_recorded_of_vllm() -> None:
    for seed in one_in(15, vllm_traffics.RECORDED_SEEDS):
        assert simulated(traffic_workload(seed)) == RECORDED[str(seed)], seed


def test_the_recording_names_its_vllm_and_meets_preemptions_and_hits() -> None:
    assert vllm_traffics.recorded()["version"].startswith(VERSION + ".")
    found = RECORDED.values()
    assert len(found) == len(vllm_traffics.RECORDED_SEEDS)
    assert sum(one["num_preemptions"] > 0 for one in found) > len(found) // 5
    assert all(any(one["hits"]) for one in found)


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_five_hundred_traffics_on_vllm_and_by_simulate_and_the_player(vllm: VllmProcess) -> None:
    num_requests = num_preempting = 0
    for seed in range(NUM_TRAFFICS):
        workload = traffic_workload(seed)
        found = vllm.run_traffic(workload)
        assert simulated(workload) == found, seed
        assert played(workload) == found, seed
        num_requests += len(found["hits"])
        num_preempting += found["num_preemptions"] > 0
    print(f"{NUM_TRAFFICS} traffics, {num_requests} requests, all equal; vLLM preempted in {num_preempting} traffics")
