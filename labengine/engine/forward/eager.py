"""The model module by module: torch everywhere, attention by the backend that was chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.ops.choice import choose_ops
from labengine.engine.rope import Rotation
from labengine.engine.step_tensors import StepTensors


class EagerForward:
    """Any device, any backend, any step."""

    def __init__(self, model: PagedModel, kv: KVTensors, backend: AttentionBackend, reason: str) -> None:
        self.model = model
        self.kv = kv
        self.backend = backend
        self._reason = reason
        device, dtype = model.norm.weight.device, model.norm.weight.dtype
        self._ops, self._ops_reason = choose_ops(device, dtype)
        self._ops.adopt(model)
        ropes = {layer.rope for layer in model.config.layers}
        self._frequencies = {rope: rope.inverse_frequencies(model.config.head_dim).to(device) for rope in ropes}

    @torch.inference_mode()
    def __call__(self, step: StepTensors) -> Tensor:
        """See Forward."""
        attention = [self.backend.prepare(step, group) for group in step.groups]
        rotations = {rope: Rotation.at(step.positions, turns) for rope, turns in self._frequencies.items()}
        logits: Tensor = self.model(step, self.kv, attention, rotations, self._ops)
        return logits

    def best(self, logits: Tensor) -> None:
        """The sampler finds out."""

    def describe(self) -> dict[str, str]:
        """Attention and what surrounds it."""
        forward = "eager: torch modules, one after the other"
        return {"attention": self._reason, "ops": self._ops_reason, "forward": forward}

    def release(self, *, keeps_weights: bool = False) -> None:
        """Weights go, unless others use them; the KV is the runner's."""
        if not keeps_weights:
            self.model.to("meta")
