"""Complete models with Triton's ops beside torch's. Run by test_triton.py, interpreted or on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.ops_settings import SMALL
from engine.plan_builder import Dealer, plan_of
from engine.triton_device import DEVICE
from labengine.engine.attention import AttentionBackend, AttentionSetting, triton
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.attention.triton import TritonAttention
from labengine.engine.backend_choice import choose_ops
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.model_files.config_file import load_config
from labengine.engine.ops import Ops, triton_ops
from labengine.engine.ops.torch_ops import OneDNNOps, TorchOps
from labengine.engine.ops.triton import TritonOps
from labengine.engine.rope import Rotation
from labengine.engine.step_tensors import step_tensors
from labengine.engine.weights import load_weights

FAMILIES = [pytest.param("llama", marks=pytest.mark.sweep), pytest.param("qwen3", marks=pytest.mark.sweep), "gemma3"]


class ModelAndPools:
    """A model and a separate pool for each kind of ops."""

    def __init__(self, model_dir: Path) -> None:
        self.config = load_config(model_dir)
        with torch.device("meta"):
            self.model = PagedModel(self.config)
        load_weights(self.model, model_dir, torch.float32, DEVICE)
        self.groups, self.layer_groups = self.config.kv_groups(4)

    @torch.inference_mode()
    def logits(self, ops: Ops, kind: type[AttentionBackend] = TorchGather) -> Tensor:
        """A chunk beside a whole prompt, then a decode beside the rest of the chunk, then a step without sampling."""
        config, dealer = self.config, Dealer(100, self.groups)
        kv = KVTensors(
            num_blocks=100,
            block_size=4,
            layer_groups=self.layer_groups,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=torch.float32,
            device=DEVICE,
        )
        heads = (config.num_heads, config.num_kv_heads, config.head_dim)
        backend = kind(AttentionSetting(DEVICE, torch.float32, *heads, (4,)))
        long, short = dealer.request(list(range(20, 37))), dealer.request(list(range(5, 12)))
        found = []
        for plan in (
            plan_of(long.take(9), short.take(6)),
            plan_of(short.take(1), long.take(7)),
            plan_of(long.take(1, samples=False)),
        ):
            step = step_tensors(plan, self.groups, DEVICE)
            attention = [backend.prepare(step, group) for group in step.groups]
            rotations = {
                layer.rope: Rotation.at(step.positions, layer.rope.inverse_frequencies(config.head_dim).to(DEVICE))
                for layer in config.layers
            }
            found.append(self.model(step, kv, attention, rotations, ops))
        return torch.cat(found)


@pytest.mark.sweep
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_model_with_tritons_ops(family: str, tiny_model: Callable[..., Path]) -> None:
    model = ModelAndPools(tiny_model(family, num_hidden_layers=2))
    expected = model.logits(TorchOps())
    found = model.logits(TritonOps())
    assert found.shape == (4, 101)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_launch_a_layer_rotates_and_writes(
    family: str, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside Triton's attention; the kernels that rotate and write alone are not launched."""
    model, num_layers = ModelAndPools(tiny_model(family, num_hidden_layers=2)), 2
    expected = model.logits(TorchOps(), TritonAttention)
    fused, launched = triton_ops.rotate_and_write, []

    def counted(*arguments: Any) -> None:
        launched.append("fused")
        fused(*arguments)

    monkeypatch.setattr(triton_ops, "rotate_and_write", counted)
    monkeypatch.setattr(triton_ops, "rotate_heads", lambda *_: launched.append("rotate"))
    monkeypatch.setattr(triton, "write_kv", lambda *_: launched.append("write"))
    found = model.logits(TritonOps(), TritonAttention)
    assert launched == ["fused"] * num_layers * 3
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_triton_is_taken_on_a_gpu_and_nowhere_else() -> None:
    """Triton is not chosen on a CPU, although it could be interpreted there."""
    ops, reason = choose_ops(replace(SMALL, device=DEVICE))
    if DEVICE.type == "cuda":
        assert type(ops) is TritonOps and reason.startswith("triton (")
    else:
        assert type(ops) is OneDNNOps and reason.startswith("onednn (")
