"""The checks of a device, on a CPU: they hold there, and they can fail."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import device_checks
import torch
from workload import make_model

from labengine import ModelRunner, StaticRunner
from labengine.core.step_plan import StepPlan
from labengine.engine import model_runner
from labengine.engine.step_tensors import StepTensors


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    make_model(directory, device_checks.TINY)
    return directory


def test_checks_on_a_cpu(model: Path) -> None:
    assert device_checks.loads(model, "cpu", 2).startswith("2 loads")
    assert device_checks.threads(model, ("cpu", "cpu")) == "a background run on cpu gives the tokens of cpu"
    words = device_checks.wide_tables(model, "cpu", rows=9, width=600, runner=StaticRunner)
    assert words.startswith("9 rows with tables of 600 columns")


def test_checks_fail() -> None:
    mib = 2**20
    device_checks.require_no_growth([100 * mib] * 5 + [110 * mib] * 35)
    with pytest.raises(AssertionError, match="memory grew by 35 MiB"):
        device_checks.require_no_growth([(100 + load) * mib for load in range(40)])
    with pytest.raises(AssertionError, match="1 of 2 answers differ, first that of request 1"):
        device_checks.require_equal([(1,), (2,)], [(1,), (3,)])


def test_decodes_that_are_not_recorded_are_no_check(model: Path) -> None:
    with pytest.raises(AssertionError, match="not recorded"):
        device_checks.wide_tables(model, "cpu", rows=2, width=100)


# -- a step without memory ---------------------------------------------------------------------------------------------


class FullMemory:
    """Stands in for a device whose memory is taken: steps fail as long as the ballast is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pieces: int = 2) -> None:
        self._pieces = pieces
        self._ballast: list[torch.Tensor] = []
        self.num_failures = 0
        monkeypatch.setattr(ModelRunner, "step_tensors", self._guarded(ModelRunner.step_tensors))

    def fill(self, device: str) -> list[torch.Tensor]:
        self._ballast = [torch.empty(1, device=device) for _ in range(self._pieces)]
        return self._ballast

    def _guarded(self, step_tensors: Any) -> Any:
        def guarded(runner: ModelRunner, plan: StepPlan) -> StepTensors:
            if self._ballast:
                self.num_failures += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            found: StepTensors = step_tensors(runner, plan)
            return found

        return guarded


def without_memory(model: Path, memory: FullMemory) -> str:
    return device_checks.full_memory(model, "cpu", length=90, num_blocks=32, fill=memory.fill)


def test_a_step_without_memory_is_taken_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FullMemory(monkeypatch)
    words = without_memory(model, memory)
    assert memory.num_failures == 1
    assert "32 blocks" in words and "; without memory: cpu has too little memory for this step" in words


def test_the_check_of_full_memory_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="a prompt of 90 tokens was computed without memory"):
        without_memory(model, FullMemory(monkeypatch, pieces=0))
    with monkeypatch.context() as patch, pytest.raises(AssertionError, match="no advice in: CUDA out of memory"):
        patch.setattr(model_runner, "AdviceWhenFull", lambda kv: nullcontext())
        without_memory(model, FullMemory(patch))
    tokens = iter([[(1,)]])
    monkeypatch.setattr(device_checks, "tokens_of", lambda lab, lengths: next(tokens))
    with pytest.raises(AssertionError, match="1 of 1 answers differ"):
        without_memory(model, FullMemory(monkeypatch))
