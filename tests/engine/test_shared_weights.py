"""Runners on the same files share weights; released or changed ones are read again."""

from __future__ import annotations

import gc
import shutil
import weakref
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.plan_builder import Dealer, plan_of
from labengine.engine import model_runner
from labengine.engine.model_runner import ModelRunner
from labengine.engine.modules import Matrix


@pytest.fixture
def model_dir(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


@pytest.fixture
def num_loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that weights were read from."""
    loads: list[Path] = []
    load = model_runner.load_weights

    def counted(*arguments: object) -> None:
        loads.append(arguments[1])  # type: ignore[arg-type]
        load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(model_runner, "load_weights", counted)
    return loads


def loaded(directory: Path, block_size: int = 4, **settings: str) -> ModelRunner:
    return ModelRunner.load(directory, num_blocks=12, block_size=block_size, device="cpu", **settings)  # type: ignore[arg-type]


def logits(runner: ModelRunner, block_size: int = 4) -> Tensor:
    return runner.forward(plan_of(Dealer(12, block_size).request([5, 6, 7, 8, 9]).take(5))).clone()


@pytest.mark.parametrize("attention", ["cpu", "torch"])
def test_a_second_runner_reads_no_weights(model_dir: Path, num_loads: list[Path], attention: str) -> None:
    first = loaded(model_dir, attention=attention)
    expected = logits(first)
    second = loaded(model_dir, block_size=2, attention=attention)
    first.release()
    assert len(num_loads) == 1
    assert torch.allclose(logits(second, block_size=2), expected, atol=1e-5)


def test_packed_weights_are_shared_and_go_with_the_last_runner(model_dir: Path) -> None:
    first = loaded(model_dir)
    second = loaded(model_dir, block_size=2)
    matrices = [module for module in first.model.modules() if isinstance(module, Matrix)]
    packed = [weakref.ref(matrix.packed) for matrix in matrices if matrix.packed is not None]
    assert second.model is first.model and len(packed) == len(matrices) - 1, "the head is the embedding"
    assert all(matrix.weight.is_meta for matrix in matrices)
    first.release()
    gc.collect()
    assert all(weight() is not None for weight in packed)
    second.release()
    gc.collect()
    assert all(weight() is None for weight in packed)


def test_other_dtypes_and_backends_have_weights_of_their_own(model_dir: Path, num_loads: list[Path]) -> None:
    runners = [loaded(model_dir, **settings) for settings in ({}, {"dtype": "bfloat16"}, {"attention": "torch"})]
    assert len(num_loads) == len(runners)


def test_released_weights_are_read_again(model_dir: Path, num_loads: list[Path]) -> None:
    first = loaded(model_dir)
    expected = logits(first)
    first.release()
    assert torch.equal(logits(loaded(model_dir)), expected)
    assert len(num_loads) == 2


def test_changed_files_are_read_again(model_dir: Path) -> None:
    first = loaded(model_dir)
    before, path = logits(first), model_dir / "model.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(path).items()}, path)
    assert not torch.equal(logits(loaded(model_dir)), before)
    assert torch.equal(logits(first), before)
