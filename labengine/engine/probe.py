"""Readings of a forward pass for one request, kept for a later comparison: logits, and K and V by position.

A probe sits between an engine and its runner; an engine without one keeps no readings.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labengine.config import GroupSpec
from labengine.core.step_plan import Logits, ScheduledRequest, StepPlan
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model_runner import ModelRunner
from labengine.engine.runner import Runner
from labengine.engine.step_tensors import first_read, slots_read
from labengine.engine.xray import recomputed
from labengine.record.snapshot import RequestState

LayerContent = tuple[Tensor, Tensor]
"""K and V of one layer at the positions that a token reads, each float32 [num_read, num_kv_heads, head_dim]."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Logits of the token at `position`, float32 [vocab_size], and the KV that its step read; None if not requested.

    All tensors are copies on the CPU.
    """

    position: int
    logits: Tensor
    layers: tuple[LayerContent, ...] | None


class Probe:
    """A runner that forwards every call to another runner, and keeps readings of one request.

    model_runner: owns the KV. kv_at: position of the sampled token whose step's KV is kept too. readings: filled here,
    by position.
    """

    def __init__(
        self,
        runner: Runner,
        model_runner: ModelRunner,
        request_id: int,
        kv_at: int,
        readings: MutableMapping[int, Reading],
    ) -> None:
        self._runner, self._model_runner = runner, model_runner
        self._request_id, self._kv_at, self._readings = request_id, kv_at, readings

    def forward(self, plan: StepPlan) -> Logits:
        """Run the forward pass; keep the request's logits if it samples."""
        logits = self._runner.forward(plan)
        for row, part in enumerate(plan.rows):
            if part.request_id == self._request_id:
                self._readings[part.end] = self._reading(part, logits[row])
        return logits

    def _reading(self, part: ScheduledRequest, logits: Tensor) -> Reading:
        kv, groups, layers = self._model_runner.kv_tensors, self._model_runner.groups, None
        if part.end == self._kv_at:
            layers = content(kv, groups, part.block_tables, part.end)
        return Reading(part.end, logits.detach().to("cpu", torch.float32, copy=True), layers)

    def __getattr__(self, name: str) -> Any:  # any other method of a runner
        return getattr(self._runner, name)


def content(
    kv: KVTensors, groups: Sequence[GroupSpec], tables: Sequence[Sequence[int]], end: int
) -> tuple[LayerContent, ...]:
    """Return, per layer, the K and V that the token at position end - 1 reads through block tables."""
    slots = [
        slots_read(spec, table, first_read(end - 1, spec.window), end)
        for spec, table in zip(groups, tables, strict=True)
    ]
    return tuple(_layer_content(kv, layer, slots[group]) for layer, group in enumerate(kv.layer_groups))


def _layer_content(kv: KVTensors, layer: int, slots: Tensor) -> LayerContent:
    pool = kv.layer(layer)
    keys, values = (
        tensor.flatten(0, 1).index_select(0, slots.to(tensor.device)).to("cpu", torch.float32)
        for tensor in (pool.keys, pool.values)
    )
    return keys, values


# -- differences -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """The difference between K and V of two readings in one layer.

    key, value: the largest absolute difference of two numbers. relative: the largest distance between two vectors (K or
    V of one position), divided by the median length of such vectors. position: of that largest distance. NaN counts as
    infinitely far.
    """

    key: float
    value: float
    relative: float
    position: int


def layer_differences(one: Sequence[LayerContent], other: Sequence[LayerContent], end: int) -> list[LayerDifference]:
    """Return the difference of each layer. end: the position after the last one read."""
    return [_difference(a, b, end) for a, b in zip(one, other, strict=True)]


def _difference(one: LayerContent, other: LayerContent, end: int) -> LayerDifference:
    key, value = (largest_difference(a, b) for a, b in zip(one, other, strict=True))
    distances = torch.stack([_relative(a.flatten(1), b.flatten(1)) for a, b in zip(one, other, strict=True)]).amax(0)
    index = int(distances.argmax())
    return LayerDifference(key, value, float(distances[index]), end - len(distances) + index)


def _relative(one: Tensor, other: Tensor) -> Tensor:
    """Return each position's distance between the vectors, divided by their median length: float32 [num_read]."""
    length = torch.maximum(one.norm(dim=1).median(), other.norm(dim=1).median())
    distance = (one - other).norm(dim=1) / length.clamp(min=torch.finfo(torch.float32).tiny)
    return torch.nan_to_num(distance, nan=torch.inf)


def largest_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference of two tensors; NaN counts as infinity."""
    return float((one - other).abs().nan_to_num(nan=torch.inf).max())


def relative_distance(one: Tensor, other: Tensor) -> float:
    """Return the distance between two tokens' logits, divided by their spread: 0 for equal, above 1 for unrelated ones.

    NaN counts as infinity.
    """
    spread = torch.maximum((one - one.mean()).norm(), (other - other.mean()).norm())
    distance = (one - other).norm() / spread.clamp(min=torch.finfo(torch.float32).tiny)
    return float(distance.nan_to_num(nan=torch.inf))


def margin_of(logits: Tensor) -> float:
    """Return the difference between the highest and the second highest logit; 0 for an exact tie."""
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


# -- the request alone -------------------------------------------------------------------------------------------------


def content_alone(runner: ModelRunner, request: RequestState, end: int) -> tuple[LayerContent, ...]:
    """Return the result of `content` for the request computed alone, in a separate pool, by plain torch."""
    kv, moved = recomputed(runner, request, end)
    return content(kv, runner.groups, moved.block_tables, end)
