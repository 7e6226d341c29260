"""Rotary position embedding: which angle each pair of a head's dimensions turns by, and the turning itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from labengine.config import ConfigError

SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """The rope of a model: its base, and how it was stretched to a longer text than it was trained on."""

    theta: float
    rope_type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192

    def inverse_frequencies(self, head_dim: int) -> Tensor:
        """Radians per position of each pair of dimensions: float32 [head_dim / 2]."""
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        frequencies = 1.0 / self.theta**exponents
        if self.rope_type == "linear":
            return frequencies / self.factor
        if self.rope_type == "llama3":
            return self._stretch_slow_turns(frequencies)
        return frequencies

    def _stretch_slow_turns(self, frequencies: Tensor) -> Tensor:
        """Llama 3.1: waves that fit often into the original length stay, the longest slow by `factor`, others blend."""
        turns = self.original_max_len * frequencies / (2 * math.pi)
        keep = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return torch.lerp(frequencies / self.factor, frequencies, keep.clamp(0.0, 1.0))


def rope_spec(raw: Mapping[str, Any]) -> RopeSpec:
    """Read the rope from config.json: rope_parameters (transformers 5), or rope_theta and rope_scaling (before)."""
    given: Mapping[str, Any] = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    partial = given.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise ConfigError("partial_rotary_factor is not supported; the rope has to turn whole heads")
    return _spec(given, raw.get("rope_theta", 10_000.0))


def local_and_global_rope(raw: Mapping[str, Any]) -> tuple[RopeSpec, RopeSpec]:
    """The ropes of Gemma 3's sliding and of its full layers: rope_parameters by layer type (transformers 5), or before
    that rope_local_base_freq, and rope_theta with rope_scaling. What is missing is as in transformers: 1e4 and 1e6.
    """
    given: Mapping[str, Any] = raw.get("rope_parameters") or {"full_attention": raw.get("rope_scaling")}
    local = _spec(given.get("sliding_attention") or {}, raw.get("rope_local_base_freq", 10_000.0))
    return local, _spec(given.get("full_attention") or {}, raw.get("rope_theta", 1_000_000.0))


def _spec(given: Mapping[str, Any], default_theta: float) -> RopeSpec:
    rope_type = given.get("rope_type", given.get("type", "default"))
    if rope_type not in SUPPORTED_ROPE_TYPES:
        raise ConfigError(f"rope type {rope_type!r} is not supported; supported: {', '.join(SUPPORTED_ROPE_TYPES)}")
    theta = float(given.get("rope_theta", default_theta))
    if rope_type == "default":
        return RopeSpec(theta)
    if rope_type == "linear":
        return RopeSpec(theta, rope_type, factor=given["factor"])
    return RopeSpec(
        theta,
        rope_type,
        factor=given["factor"],
        low_freq_factor=given["low_freq_factor"],
        high_freq_factor=given["high_freq_factor"],
        original_max_len=given["original_max_position_embeddings"],
    )


@dataclass(frozen=True, slots=True)
class Rotation:
    """The turn of every token of a batch: cos and sin, float32 [num_tokens, 1, head_dim / 2]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, inverse_frequencies: Tensor) -> Rotation:
        """Return the rotation of tokens at `positions`, int [num_tokens].

        Float32 holds every position below 2**24 exactly.
        """
        angles = torch.outer(positions.float(), inverse_frequencies).unsqueeze(1)
        return cls(angles.cos(), angles.sin())

    def turn(self, heads: Tensor) -> Tensor:
        """Turn queries or keys [num_tokens, num_heads, head_dim]; dimension i pairs with i + head_dim / 2."""
        first, second = heads.float().chunk(2, dim=-1)
        turned = torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin), dim=-1)
        return turned.to(heads.dtype)


Rotations = Mapping[RopeSpec, Rotation]
"""A step's rotation by every rope of a model."""
