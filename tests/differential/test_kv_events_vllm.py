"""Live: KV events of vLLM 0.32's own publisher, followed over ZeroMQ, against what vLLM has cached and hit.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_kv_events_vllm.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from differential import kv_events
from differential.vllm_process import VllmProcess
from labengine.vllm.cache_events.holdings import Presence


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_the_fold_of_kv_events_is_what_vllm_has_cached_at_each_batch(vllm: VllmProcess, tmp_path: Path) -> None:
    comparison = kv_events.Comparison()
    for seed in range(200, 300):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = folder / "events.kvevents"
        comparison.take(path, kv_events.record(vllm, seed, path, folder))
    assert all(comparison.presences[presence] for presence in Presence)
    assert 0 < comparison.num_hits_proved < comparison.num_hits
    print(f"{comparison.num_batches} batches; {vars(comparison)}")
