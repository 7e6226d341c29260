"""The implementations of what surrounds attention: all compute what the modules compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, relu, silu

from engine.ops_settings import SMALL
from engine.reference import largest_difference, transformers_logits
from labengine.engine.backend_choice import choose_ops
from labengine.engine.model import PagedModel
from labengine.engine.model_files.config_file import load_config
from labengine.engine.model_runner import ModelRunner
from labengine.engine.modules import Linear, OffsetRMSNorm, RMSNorm, TiedLinear
from labengine.engine.ops import torch_ops
from labengine.engine.ops.torch_ops import OneDNNOps, TorchOps, gelu_tanh
from labengine.engine.ops.triton import TritonOps
from labengine.engine.rope import Rotation
from labengine.engine.weights import load_weights

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def random_norm(kind: type[RMSNorm], size: int, dtype: torch.dtype) -> RMSNorm:
    norm = kind(size, 1e-5).requires_grad_(False).to(dtype)
    norm.weight.uniform_(-0.5, 1.5)
    return norm


def loaded(model_dir: Path, dtype: torch.dtype = torch.float32) -> PagedModel:
    with torch.device("meta"):
        model = PagedModel(load_config(model_dir))
    load_weights(model, model_dir, dtype, CPU)
    return model


# -- the words of the contract -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RMSNorm, OffsetRMSNorm])
@pytest.mark.parametrize("dtype", DTYPES)
def test_adding_comes_before_the_norm_and_is_rounded(kind: type[RMSNorm], dtype: torch.dtype) -> None:
    stream, part = torch.randn(2, 5, 48).to(dtype)
    norm = random_norm(kind, 48, dtype)
    normed, total = TorchOps().add_norm(stream, part, norm)
    assert torch.equal(total, stream + part) and torch.equal(normed, norm(total))
    normed, total = TorchOps().add_norm(stream, None, norm)
    assert (
        torch.equal(total, stream)
        and torch.equal(normed, norm(stream))
        and torch.equal(TorchOps().norm(stream, norm), normed)
    )


@pytest.mark.parametrize("normed", [False, True])
def test_heads_are_normed_before_they_rotate_and_values_stay(normed: bool) -> None:
    projected = torch.randn(7, 5 * 16)
    before = projected.clone()
    heads = projected.unflatten(-1, (5, 16))[:, :3]
    rotation = Rotation.at(torch.arange(7, dtype=torch.int32), torch.linspace(1, 0.1, 8))
    norm = random_norm(RMSNorm, 16, torch.float32) if normed else None
    expected = rotation.rotate(norm(heads.clone()) if norm else heads.clone())
    assert torch.equal(TorchOps().rotate(heads, rotation, norm), expected)
    assert torch.equal(projected.unflatten(-1, (5, 16))[:, 3:], before.unflatten(-1, (5, 16))[:, 3:])


@pytest.mark.parametrize("activation", [silu, gelu_tanh])
def test_the_gate_is_the_first_half(activation: Callable[[Tensor], Tensor]) -> None:
    gate, up = torch.randn(2, 6, 10)
    torch.testing.assert_close(TorchOps().gated(torch.cat((gate, up), dim=1), activation), activation(gate) * up)


@pytest.mark.parametrize("own", [{"norm": type("Own", (RMSNorm,), {})}, {"activation": relu}])
def test_tritons_kernels_refuse_a_norm_and_an_activation_of_another_formula(own: dict[str, Any]) -> None:
    assert TritonOps.refusal(replace(SMALL, **own)) == "it has no kernels for the model's norm or activation"


# -- packed matrices ---------------------------------------------------------------------------------------------------


def packs(dtype: torch.dtype) -> bool:
    return OneDNNOps.refusal(replace(SMALL, dtype=dtype)) is None


def test_float32_is_packed_wherever_torch_has_onednn() -> None:
    assert packs(torch.float32) is torch.backends.mkldnn.is_available()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 1e-1)])
@pytest.mark.parametrize(("num_rows", "shape"), [(0, (16, 16)), (1, (960, 576)), (3, (17, 33)), (70, (96, 50))])
def test_a_packed_product_is_the_product(
    dtype: torch.dtype, tolerance: float, num_rows: int, shape: tuple[int, int]
) -> None:
    if not packs(dtype):
        assert OneDNNOps.refusal(replace(SMALL, dtype=dtype))
        return
    module = Linear(shape[1], shape[0]).requires_grad_(False).to(dtype)
    module.weight.normal_()
    hidden = torch.randn(num_rows, shape[1]).to(dtype)
    expected = linear(hidden, module.weight)
    module.multiply_by(torch_ops.PackedProduct(module.weight))
    found = module(hidden)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("family", "settings"), [("llama", {}), ("qwen3", {}), ("gemma3", {"sliding_window": 8})])
@pytest.mark.parametrize("tied", [True, False])
def test_an_adopted_model_equals_transformers(
    family: str, settings: dict[str, int], tied: bool, tiny_model: Callable[..., Path]
) -> None:
    model_dir = tiny_model(family, tie_word_embeddings=tied, **settings)
    texts = [Random(length).choices(range(101), k=length) for length in (5, 23, 41)]
    expected = [transformers_logits(model_dir)(text) for text in texts]
    runner = ModelRunner.load(model_dir, num_blocks=300, block_size=4, device="cpu", attention="torch")
    OneDNNOps().adopt(runner.model)
    products = [module.product for module in runner.model.modules() if isinstance(module, Linear)]
    assert len(products) == 4 * runner.num_layers + 1
    assert all(isinstance(product, torch_ops.PackedProduct) for product in products)
    assert largest_difference(runner, texts, expected, chunk=7, num_decodes=4) < 1e-4


def test_an_adopted_model_keeps_one_copy_of_its_weights(tiny_model: Callable[..., Path]) -> None:
    model = loaded(tiny_model("llama", tie_word_embeddings=True))
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    OneDNNOps().adopt(model)
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
    assert model.get_parameter("layers.0.mlp.down.weight").is_meta
    assert not model.embedding.weight.is_meta and isinstance(model.lm_head, TiedLinear)


def test_a_model_moved_away_lets_go_of_what_was_packed(tiny_model: Callable[..., Path]) -> None:
    model = loaded(tiny_model("llama", tie_word_embeddings=True))
    OneDNNOps().adopt(model)
    model.to("meta")
    assert all(module.product is linear for module in model.modules() if isinstance(module, Linear))
    assert model.lm_head.weight.is_meta


def test_a_tied_head_is_no_second_parameter(tiny_model: Callable[..., Path]) -> None:
    model = loaded(tiny_model("llama", tie_word_embeddings=True))
    assert [name for name, _ in model.named_parameters(remove_duplicate=False) if "lm_head" in name] == []
    assert model.lm_head.weight is model.embedding.weight


# -- who is taken ------------------------------------------------------------------------------------------------------


def test_a_cpu_packs_its_weights() -> None:
    ops, reason = choose_ops(SMALL)
    assert type(ops) is OneDNNOps and reason == "onednn (weights packed for this CPU)"


def test_a_torch_that_cannot_pack_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: Tensor) -> None:
        raise RuntimeError("no such layout\nwith a long story")

    monkeypatch.setattr(torch_ops, "PackedProduct", refuse)
    torch_ops._trial.cache_clear()
    try:
        ops, reason = choose_ops(SMALL)
    finally:
        torch_ops._trial.cache_clear()
    assert type(ops) is TorchOps
    assert reason == (
        "torch (plain torch: any device, any dtype; "
        "not onednn: this torch packs no float32 weights on this CPU (no such layout))"
    )


def test_wrong_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_ops.PackedProduct, "__call__", lambda self, hidden, weight: linear(hidden, -weight))
    torch_ops._trial.cache_clear()
    try:
        assert OneDNNOps.refusal(SMALL) == "packed float32 products are wrong on this CPU"
    finally:
        torch_ops._trial.cache_clear()
