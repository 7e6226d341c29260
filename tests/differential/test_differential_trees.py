"""Live: 2,000 random workloads through SGLang's and mini-sglang's own schedulers and trees, and through ours.

LABENGINE_SGLANG=wheel LABENGINE_MINI_SGLANG=clone LABENGINE_SGLANG_PYTHON=python pytest -s
tests/differential/test_differential_trees.py (see tree_process.py)
"""

from __future__ import annotations

import pytest

from differential.tree_encounters import Compared
from differential.tree_process import EDITIONS, UPSTREAM, named_folder, upstream_of
from differential.tree_workloads import WORKLOADS

NUM_WORKLOADS = 2000

LEAST = {"retraction": 200, "eviction": 500, "page above 1": 500}
"""How many of SGLang's workloads meet these at least."""


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_step_is_equal(edition: str) -> None:
    variable, _, version = UPSTREAM[edition]
    folder = named_folder(edition)
    if folder is None:
        pytest.skip(f"set {variable} to the folder of {version}; its recorded outputs were compared")
    compared = Compared(edition)
    with upstream_of(edition, folder) as upstream:
        for seed in range(NUM_WORKLOADS):
            workload = WORKLOADS[edition](seed)
            difference = compared.difference(workload, upstream.run(workload))
            assert difference is None, f"workload {seed}: {difference}\n{workload}"
    print(f"{edition}: {NUM_WORKLOADS} workloads, {compared.num_steps} steps, equal after each; {dict(compared.met)}")
    assert edition != "sglang" or all(compared.met[name] >= number for name, number in LEAST.items())
