"""Runs a model on a device: a step plan in, logits and tokens out. Knows no scheduler and decides nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from labengine.core.step_plan import StepPlan
from labengine.engine.attention import attention_backend
from labengine.engine.device import choose_device, choose_dtype
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.model_config import ModelConfig
from labengine.engine.sampler import sample
from labengine.engine.step_tensors import step_tensors
from labengine.engine.weights import load_weights


class ModelRunner:
    """A loaded model and its KV pool: one full-attention group."""

    def __init__(self, model: PagedModel, kv: KVTensors, block_size: int, reasons: dict[str, str]) -> None:
        self.model = model
        self.kv_tensors = kv
        self._block_sizes = (block_size,)
        self._backend, why = attention_backend()
        self._reasons = {**reasons, "attention": f"{self._backend.name} ({why})"}
        self._device = model.norm.weight.device
        self._inverse_frequencies = model.config.rope.inverse_frequencies(model.config.head_dim).to(self._device)

    @classmethod
    def load(
        cls,
        model_dir: Path,
        *,
        num_blocks: int,
        block_size: int,
        dtype: str | torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> ModelRunner:
        """Load weights and allocate the pool.

        dtype None is float32 on a CPU and bfloat16 on a GPU; device None is a GPU where there is one.
        Raises ConfigError: a model, dtype or device that is not supported, or a pool that does not fit.
        """
        config = ModelConfig.load(model_dir)
        torch_device, device_reason = choose_device(device)
        torch_dtype, dtype_reason = choose_dtype(dtype, torch_device)
        kv = KVTensors(
            num_blocks=num_blocks,
            block_size=block_size,
            layer_groups=[0] * config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=torch_dtype,
            device=torch_device,
        )
        with torch.device("meta"):
            model = PagedModel(config)
        load_weights(model, model_dir, torch_dtype, torch_device)
        return cls(model, kv, block_size, {"device": device_reason, "dtype": dtype_reason})

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a text, by generation_config.json, else config.json."""
        return self.model.config.eos_token_ids

    @property
    def num_layers(self) -> int:
        """Layers of the model, each with KV of its own."""
        return self.model.config.num_layers

    @property
    def max_model_len(self) -> int:
        """Positions that the model was made for."""
        return self.model.config.max_model_len

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 to vocab_size - 1."""
        return self.model.config.vocab_size

    def describe(self) -> dict[str, str]:
        """What runs here, and why: one readable line each for model, device, dtype, attention and KV pool."""
        return {"model": self._model_line(), **self._reasons, "kv_pool": self._pool_line()}

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> Tensor:
        """Compute the plan's tokens; logits float32 [len(plan.sampling), vocab_size], rows in that order.

        Writes KV into the plan's slots only: when it is interrupted, nothing but those may hold garbage.
        """
        if not plan.scheduled:
            return torch.empty(0, self.vocab_size, device=self._device)
        step = step_tensors(plan, self._block_sizes, self._device)
        attention = [self._backend.prepare(step, group) for group in step.groups]
        logits: Tensor = self.model(step, self.kv_tensors, attention, self._inverse_frequencies)
        return logits

    @torch.inference_mode()
    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        """One token id per request of plan.sampling. Raises FloatingPointError for NaN logits."""
        return sample(logits, plan.sampling)

    def kv(self, block_id: int, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of a block's K and V, each [block_size, num_kv_heads, head_dim]. Raises IndexError."""
        return self.kv_tensors.block(block_id, layer)

    def release(self) -> None:
        """Let weights and KV go: every tensor becomes empty, and what needs one fails from now on."""
        self.model.to("meta")
        self.kv_tensors.release()

    def _model_line(self) -> str:
        millions = sum(parameter.numel() for parameter in self.model.parameters()) / 1e6
        return f"{self.model.config.model_type}, {self.num_layers} layers, {millions:,.0f} M parameters"

    def _pool_line(self) -> str:
        kv = self.kv_tensors
        return f"{kv.num_blocks} blocks of {self._block_sizes[0]} tokens, {kv.num_bytes / 2**20:,.1f} MiB"
