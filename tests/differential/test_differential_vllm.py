"""Live: random workloads through vLLM 0.32's own KVCacheManager and Scheduler and through ours, equal after every row.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_differential_vllm.py
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest

import vllm_mixed_workloads
from differential import vllm_tier
from differential.vllm_comparison import first_difference, rows_of_replay, rows_of_simulate
from differential.vllm_encounters import met_by_ops, met_by_steps, workloads_meeting
from differential.vllm_mixed import rows_of_mixed
from differential.vllm_mixed_encounters import met_by_mixed
from differential.vllm_process import VllmProcess
from differential.vllm_tier import DEPARTING, rows_with_tier, tier_workloads
from vllm_priority_workloads import priority_workload
from vllm_scheduler_workloads import scheduler_workload, unread_workload
from vllm_state_workloads import state_workload
from vllm_workloads import KINDS, looking_ahead, op_workload, with_states

NUM_OP_WORKLOADS = 2000
NUM_PREEMPTING_WORKLOADS = 500
NUM_TIER_WORKLOADS = 2000
NUM_STATE_WORKLOADS = 500
NUM_AHEAD_WORKLOADS = 1500
NUM_MIXED_WORKLOADS = 2000


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_every_op_is_equal(vllm: VllmProcess, kind: str) -> None:
    num_ops, met = 0, []
    for seed in range(NUM_OP_WORKLOADS):
        workload = op_workload(seed, kind)
        rows = vllm.run_ops(workload)
        difference = first_difference(rows, rows_of_replay(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        met.append(met_by_ops(workload, rows))
        num_ops += len(rows)
    print(f"{kind}: {NUM_OP_WORKLOADS} workloads, {num_ops} ops, equal after each; met {dict(workloads_meeting(met))}")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_every_op_that_looks_ahead_is_equal(vllm: VllmProcess, kind: str) -> None:
    for seed in range(NUM_AHEAD_WORKLOADS):
        workload = looking_ahead(op_workload(seed, kind), seed)
        difference = first_difference(vllm.run_ops(workload), rows_of_replay(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_every_op_with_states_and_marked_groups_is_equal(vllm: VllmProcess, kind: str) -> None:
    for seed in range(NUM_AHEAD_WORKLOADS):
        workload = with_states(op_workload(seed, kind), seed)
        difference = first_difference(vllm.run_ops(workload), rows_of_replay(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("make", [scheduler_workload, priority_workload, unread_workload])
def test_every_step_is_equal(vllm: VllmProcess, make: Callable[[int], dict[str, Any]]) -> None:
    """Workload after workload, until vLLM has preempted in 500 of them."""
    num_steps, met = 0, []
    for seed in count():
        workload = make(seed)
        rows = vllm.run_scheduler(workload)
        difference = first_difference(rows, rows_of_simulate(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        met.append(met_by_steps(workload, rows))
        num_steps += len(rows)
        if sum("preemption" in encounters for encounters in met) == NUM_PREEMPTING_WORKLOADS:
            break
    print(f"{len(met)} workloads, {num_steps} steps, equal after each; met {dict(workloads_meeting(met))}")


@pytest.mark.timeout(1800)
def test_every_step_with_states_is_equal(vllm: VllmProcess) -> None:
    num_steps = 0
    for seed in range(NUM_STATE_WORKLOADS):
        workload = state_workload(seed)
        rows = vllm.run_scheduler(workload)
        difference = first_difference(rows, rows_of_simulate(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        num_steps += len(rows)
    print(f"{NUM_STATE_WORKLOADS} workloads with states, {num_steps} steps, equal after each")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", vllm_mixed_workloads.KINDS)
def test_every_step_of_what_is_mixed_is_equal(vllm: VllmProcess, kind: str) -> None:
    num_rows, met = 0, []
    for seed in range(NUM_MIXED_WORKLOADS):
        workload = vllm_mixed_workloads.mixed_workload(seed, kind)
        rows = vllm.run_mixed(workload)
        difference = first_difference(rows, rows_of_mixed(workload))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        met.append(met_by_mixed(workload, rows))
        num_rows += len(rows)
    print(f"{kind}: {len(met)} workloads, {num_rows} rows, all equal; met {dict(workloads_meeting(met))}")


@pytest.mark.timeout(1800)
def test_every_step_with_an_external_tier_is_equal(vllm: VllmProcess) -> None:
    num_steps = 0
    for number, workload in enumerate(islice(tier_workloads(), NUM_TIER_WORKLOADS)):
        rows = vllm.run_scheduler(workload)
        difference = first_difference(rows, rows_with_tier(workload))
        assert difference is None, f"workload {number}: {difference}\n{workload}"
        num_steps += len(rows)
    print(f"{NUM_TIER_WORKLOADS} workloads with a tier, {num_steps} steps, equal after each")


@pytest.mark.parametrize("number", range(len(DEPARTING)))
def test_a_departure_shows_where_a_workload_asks_for_it(
    number: int, vllm: VllmProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_tier, "refuse_departures", lambda workload: None)
    workload = DEPARTING[number]
    assert first_difference(vllm.run_scheduler(workload), rows_with_tier(workload)) is not None
