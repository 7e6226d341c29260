"""Loading weights: packed piece by piece, or each in separate memory; and the modules of packed weights."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.plan_builder import Dealer, plan_of
from labengine.config import ConfigError
from labengine.engine import mapped_memory, weights
from labengine.engine.mapped_memory import MappedMemory
from labengine.engine.model import PagedModel
from labengine.engine.model_files.config_file import load_config
from labengine.engine.model_runner import ModelRunner
from labengine.engine.modules import Matrix
from labengine.engine.weights import PIECE_ROWS, load_weights

CPU = torch.device("cpu")


@pytest.fixture
def model_dir(tiny_llama: Path, tmp_path: Path) -> Path:
    """A model with 101 token ids, to break."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PIECE_BYTES", 1)


def empty_model(model_dir: Path) -> PagedModel:
    with torch.device("meta"):
        return PagedModel(load_config(model_dir))


def loaded(model_dir: Path, **settings: str) -> ModelRunner:
    return ModelRunner.load(model_dir, num_blocks=12, block_size=4, device="cpu", **settings)  # type: ignore[arg-type]


def logits(runner: ModelRunner) -> Tensor:
    return runner.forward(plan_of(Dealer(12, 4).request([5, 6, 7, 8, 9]).take(5))).clone()


@pytest.mark.usefixtures("small_pieces")
def test_a_matrix_comes_in_pieces_and_a_stacked_one_at_once(model_dir: Path) -> None:
    lengths: dict[tuple[int, bool], list[int]] = {}
    addresses = set()

    def packing(
        pieces: Iterable[Tensor], shape: Sequence[int], dtype: torch.dtype, memory: MappedMemory, *, is_gated: bool
    ) -> Tensor:
        for piece in pieces:
            lengths.setdefault((shape[0], is_gated), []).append(len(piece))
            addresses.add(piece.data_ptr())
        return memory.take(1, dtype)

    model = empty_model(model_dir)
    load_weights(model, model_dir, torch.float32, CPU, packing)
    assert lengths[101, False] == [PIECE_ROWS, 101 - PIECE_ROWS], "the embedding"
    gate_and_up = model.get_parameter("layers.0.mlp.gate_up.weight")
    assert lengths[len(gate_and_up), True] == [len(gate_and_up)] * model.config.num_layers
    assert len(addresses) <= 3, "the same memory, which grew"
    assert all(module.weight.is_meta for module in model.modules() if isinstance(module, Matrix))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pieces_change_no_logit(model_dir: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = loaded(model_dir, dtype=dtype)
    expected = logits(runner)
    runner.release()
    monkeypatch.setattr(weights, "PIECE_BYTES", 1)
    assert torch.equal(logits(loaded(model_dir, dtype=dtype)), expected)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("number", "dtype", "message"),
    [
        (float("nan"), "float32", r"model.embed_tokens.weight .*NaN"),
        (3.4028e38, "bfloat16", r"torch.bfloat16.* dtype='float32'"),
    ],
)
def test_a_number_in_the_last_piece_is_refused(model_dir: Path, number: float, dtype: str, message: str) -> None:
    path = model_dir / "model.safetensors"
    tensors = load_file(path)
    tensors["model.embed_tokens.weight"][100, 47] = number
    save_file(tensors, path)
    with pytest.raises(ConfigError, match=message):
        loaded(model_dir, dtype=dtype)


def test_what_is_not_packed_keeps_no_other_tensor_in_memory(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN packs all matrices but the embedding, and theirs are freed."""
    monkeypatch.setattr(mapped_memory, "LARGE", 1)
    model = empty_model(model_dir)
    load_weights(model, model_dir, torch.float32, CPU)
    assert all(weight.untyped_storage().nbytes() == weight.nbytes for weight in model.parameters())


# -- modules that compute ----------------------------------------------------------------------------------------------


def test_modules_of_packed_weights_are_read_once_and_go_with_the_last_runner(model_dir: Path) -> None:
    first, second = loaded(model_dir), loaded(model_dir)
    modules = first.torch_modules()
    assert modules is second.torch_modules() is not first.model
    original = load_file(model_dir / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(modules.embedding.weight, original)
    kept = weakref.ref(modules.embedding.weight)
    del modules
    first.release()
    gc.collect()
    assert kept() is not None
    second.release()
    gc.collect()
    assert kept() is None


def test_weights_that_are_not_packed_are_not_read_again(model_dir: Path) -> None:
    runner = loaded(model_dir, attention="torch")
    assert runner.torch_modules() is runner.model


def test_modules_are_not_read_from_other_files(model_dir: Path) -> None:
    runner, path = loaded(model_dir), model_dir / "model.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(path).items()}, path)
    with pytest.raises(ConfigError, match=r"model.safetensors has changed"):
        runner.torch_modules()
