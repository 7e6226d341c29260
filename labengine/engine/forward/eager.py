"""The model module by module: torch everywhere, attention by the selected backend."""

from __future__ import annotations

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend
from labengine.engine.backend_choice import choose_ops
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.rope import Rotation, Rotations
from labengine.engine.states import StepStates
from labengine.engine.step_tensors import StepTensors


class EagerForward:
    """A forward pass for any device, backend and step."""

    def __init__(self, model: PagedModel, kv: KVTensors, backend: AttentionBackend, reason: str) -> None:
        self.model = model
        self.kv = kv
        self.backend = backend
        self._reason = reason
        self.ops, self._ops_reason = choose_ops(model.ops_setting)
        self.ops.adopt(model)
        device = model.norm.weight.device
        self._frequencies = {
            rope: rope.inverse_frequencies(model.config.head_dim).to(device) for rope in model.config.ropes
        }

    @torch.inference_mode()
    def __call__(self, step: StepTensors, out: Tensor | None = None) -> Tensor:
        """Compute a step; see Forward. out: float32 memory for the logits; without it, they are allocated."""
        attention = [
            StepStates.prepared(step, group) if group.is_state else self.backend.prepare(step, group)
            for group in step.groups
        ]
        logits: Tensor = self.model(step, self.kv, attention, self.rotations(step.positions), self.ops, out)
        return logits

    def rotations(self, positions: Tensor) -> Rotations:
        """Return the rotations of tokens at `positions`, by every rope of the model."""
        return {
            rope: Rotation.at(positions, frequencies, rope.magnitude) for rope, frequencies in self._frequencies.items()
        }

    def argmax(self, logits: Tensor) -> None:
        """Return None, so that the sampler computes it."""

    def describe(self) -> dict[str, str]:
        """Return lines on attention and the other ops."""
        forward = "eager: torch modules, one by one"
        if (needs := self.model.config.needs_modules) is not None:
            forward += f" (graphs and native programs cannot compute {needs})"
        return {"attention": self._reason, "ops": self._ops_reason, "forward": forward}

    def release(self) -> None:
        """Do nothing, as it has no memory besides weights and KV."""
