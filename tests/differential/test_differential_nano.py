"""Live: 2,000 random workloads through upstream nano-vLLM's own scheduler and through ours, equal after every step.

LABENGINE_NANO_VLLM=path/to/nano-vllm pytest tests/differential/test_differential_nano.py
"""

from __future__ import annotations

import pytest

from differential.comparison import first_difference, rows_of_labengine
from differential.nano_upstream import COMMIT, EDITIONS, VARIABLE, Upstream, find_checkout
from workloads import random_workload

NUM_WORKLOADS = 2000


@pytest.fixture(scope="module")
def upstream() -> Upstream:
    checkout = find_checkout()
    if checkout is None:
        pytest.skip(f"set {VARIABLE} to a checkout of nano-vLLM at {COMMIT[:7]}; its recorded outputs were compared")
    pytest.importorskip("xxhash")
    return Upstream(checkout)


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_step_is_equal(upstream: Upstream, edition: str) -> None:
    num_steps = 0
    for seed in range(NUM_WORKLOADS):
        workload = random_workload(seed)
        rows = upstream.run(workload, edition)
        difference = first_difference(rows, rows_of_labengine(workload, edition))
        assert difference is None, f"workload {seed}: {difference}\n{workload}"
        num_steps += len(rows)
    print(f"{edition}: {NUM_WORKLOADS} workloads, {num_steps} steps, equal after each")
