"""Live: drive("vllm") against a simulated lab on edition vllm, and its events against vLLM's state, after each call.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/differential/test_drive_vllm.py
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from differential.driven_comparison import Beside, UnlikeError
from differential.driven_workloads import driven_workload
from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from labengine.driven import imported, process
from labengine.driven.driven import Driven
from labengine.events import BlockFreed
from labengine.record import fold
from seeds import first

NUM_WORKLOADS, NUM_SWEEP_WORKLOADS = 35, 1000
ALWAYS = (
    *("preemption", "preemption by priority", "eviction", "hit", "states", "checkpoints", "windows", "several groups"),
    *("draft accepted", "draft rejected", "abort", "reset", "salt", "adapter", "image", "answers", "unread"),
    *("watermark", "retention_interval", "long_prefill_token_threshold", "max_model_len", "copied state"),
)
"""What the workloads must meet."""


def _driven() -> Driven:
    if (python := named_interpreter()) is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}")
    return Driven("vllm", python)


@pytest.fixture(scope="module")
def beside() -> Iterator[Beside]:
    found = Beside(_driven())
    yield found
    found.close()


@pytest.mark.timeout(3600)
def test_a_driven_vllm_equals_the_edition_and_its_own_events(beside: Beside) -> None:
    for seed in first(NUM_WORKLOADS, NUM_SWEEP_WORKLOADS):
        try:
            beside.run(driven_workload(seed))
        except UnlikeError as error:
            pytest.fail(f"workload {seed}: {error}")
    print(f"{beside.name}: {beside.num_steps} steps, {beside.num_calls} calls, equal after each; met {beside.met}")
    assert not [word for word in ALWAYS if not beside.met[word]]


@pytest.mark.timeout(600)
def test_a_fault_of_the_fold_is_seen(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fold._APPLY, BlockFreed, lambda state, event: None)
    with pytest.raises(UnlikeError, match="in the engine"):
        beside.run(driven_workload(0))


@pytest.mark.timeout(600)
def test_a_fault_of_the_driver_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets the salts, so that requests share what they must not."""
    driven, inside = _driven(), tmp_path / "driven" / "inside"
    shutil.copytree(process.DRIVER.parent, inside)
    shutil.copytree(process.DRIVER.parents[2] / "isolation", tmp_path / "isolation")
    scheduler = inside / "vllm_scheduler.py"
    text = scheduler.read_text()
    assert "cache_salt=salt," in text
    scheduler.write_text(text.replace("cache_salt=salt,", "cache_salt=None,"))
    monkeypatch.setattr(imported, "COPIES", inside / "copies.py")
    faulty = Beside(driven)
    try:
        with pytest.raises(UnlikeError, match="each can hit the other's"):
            for seed in range(NUM_WORKLOADS):
                faulty.run(driven_workload(seed))
    finally:
        faulty.close()
