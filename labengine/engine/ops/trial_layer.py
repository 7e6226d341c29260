"""The ops of one token in a layer of a model's sizes, to find out whether an implementation can run them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.modules import RMSNorm
from labengine.engine.ops import Ops, OpsSetting
from labengine.engine.rope import Rotation

EPS = 1e-6


class OneSlot(StepAttention):
    """The attention of a one-token step, reduced to what the ops need: the token's slot."""

    def __init__(self, device: torch.device) -> None:
        self._slots = torch.zeros(1, dtype=torch.int32, device=device)

    @property
    def plain_slots(self) -> Tensor:
        """The token's slot."""
        return self._slots

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write nothing."""

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Return the queries."""
        return queries


def take_trial_layer(ops: Ops, setting: OpsSetting) -> None:
    """Launch each op that a layer may launch, including both kinds of rotation; attention decides which one is used."""
    row, norm = _ones(setting, 1, setting.hidden_size), _norm(setting, setting.hidden_size)
    ops.add_norm(row, row.clone(), norm)
    ops.norm(row, norm)
    _rotate(ops, setting)
    ops.gated(_ones(setting, 1, 2 * setting.intermediate_size), setting.activation)


def _rotate(ops: Ops, setting: OpsSetting) -> None:
    num_heads, num_kv_heads, head_dim = setting.num_heads, setting.num_kv_heads, setting.head_dim
    heads = _ones(setting, 1, num_heads + 2 * num_kv_heads, head_dim)
    cache = LayerKV(*_ones(setting, 2, 1, 1, num_kv_heads, head_dim))
    angles = torch.zeros(1, 1, head_dim // 2, device=setting.device)
    rotation = Rotation(angles.cos(), angles.sin())
    norms = (_norm(setting, head_dim), _norm(setting, head_dim)) if setting.has_head_norms else None
    ops.rotate_and_write(heads, num_kv_heads, rotation, norms, OneSlot(setting.device), cache)
    if norms is None:
        ops.rotate(heads[:, :-num_kv_heads], rotation)
    else:
        ops.rotate(heads[:, :num_heads], rotation, norms[0])
        ops.rotate(heads[:, num_heads:-num_kv_heads], rotation, norms[1])


def _norm(setting: OpsSetting, size: int) -> RMSNorm:
    norm = setting.norm(size, EPS)
    norm.weight = nn.Parameter(_ones(setting, size), requires_grad=False)
    return norm


def _ones(setting: OpsSetting, *shape: int) -> Tensor:
    return torch.ones(shape, dtype=setting.dtype, device=setting.device)
