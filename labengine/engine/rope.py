"""Rotary position embedding: the angle of each pair of a head's dimensions, and the rotation itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from labengine.config import ConfigError

SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """A model's rope: its base, and how it is scaled to a longer context than it was trained on."""

    theta: float
    rope_type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192
    share: float = 1.0
    """The leading part of each head that is rotated."""

    def rotated_dims(self, head_dim: int) -> int:
        """Return how many dimensions of a head are rotated."""
        return int(head_dim * self.share)

    def inverse_frequencies(self, head_dim: int) -> Tensor:
        """Return the radians per position of each rotated pair of dimensions: float32 [rotated_dims / 2]."""
        rotated = self.rotated_dims(head_dim)
        exponents = torch.arange(0, rotated, 2, dtype=torch.int64).float() / rotated
        frequencies = 1.0 / self.theta**exponents
        if self.rope_type == "linear":
            return frequencies / self.factor
        if self.rope_type == "llama3":
            return self._scale_slow_waves(frequencies)
        return frequencies

    def _scale_slow_waves(self, frequencies: Tensor) -> Tensor:
        """Scale slow waves as Llama 3.1 does.

        Fast ones stay, the slowest are divided by `factor`, others are blended.
        """
        num_waves = self.original_max_len * frequencies / (2 * math.pi)
        keep = (num_waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return torch.lerp(frequencies / self.factor, frequencies, keep.clamp(0.0, 1.0))


NO_ROPE = RopeSpec(1.0, share=0.0)
"""Nothing is rotated: position is known from the layers with a state (Granite 4)."""


def rope_spec(raw: Mapping[str, Any]) -> RopeSpec:
    """Read the rope from config.json: rope_parameters (transformers 5), or rope_theta and rope_scaling (before)."""
    settings: Mapping[str, Any] = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    partial = settings.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise ConfigError("partial_rotary_factor is not supported; the rope has to turn whole heads")
    default_theta = 1_000_000.0 if raw.get("model_type") in ("lfm2", "lfm2_moe", "mixtral") else 10_000.0
    return _spec(settings, raw.get("rope_theta", default_theta))


def partial_rope_spec(raw: Mapping[str, Any], default_share: float) -> RopeSpec:
    """Read the rope of a family that rotates part of a head. Raises ConfigError unless that is an even number of dims.

    transformers sets Bamba's share itself, whatever partial_rotary_factor stands beside rope_parameters.
    """
    settings: Mapping[str, Any] = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    beside = default_share if raw["model_type"] == "bamba" else raw.get("partial_rotary_factor", default_share)
    rope = replace(
        _spec(settings, raw.get("rope_theta", 10_000.0)), share=settings.get("partial_rotary_factor", beside)
    )
    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    if rope.rotated_dims(head_dim) < 2 or rope.rotated_dims(head_dim) % 2:
        raise ConfigError(
            f"partial_rotary_factor {rope.share} rotates {rope.rotated_dims(head_dim)} of {head_dim} dimensions of a "
            "head; it should be an even number, at least 2"
        )
    return rope


def local_and_global_rope(raw: Mapping[str, Any]) -> tuple[RopeSpec, RopeSpec]:
    """Read the ropes of Gemma 3's sliding and full layers: rope_parameters by layer type (transformers 5).

    Before that: rope_local_base_freq, and rope_theta with rope_scaling. Defaults are transformers': 1e4 and 1e6.
    """
    settings: Mapping[str, Any] = raw.get("rope_parameters") or {"full_attention": raw.get("rope_scaling")}
    local = _spec(settings.get("sliding_attention") or {}, raw.get("rope_local_base_freq", 10_000.0))
    return local, _spec(settings.get("full_attention") or {}, raw.get("rope_theta", 1_000_000.0))


def _spec(settings: Mapping[str, Any], default_theta: float) -> RopeSpec:
    rope_type = settings.get("rope_type", settings.get("type", "default"))
    if rope_type not in SUPPORTED_ROPE_TYPES:
        raise ConfigError(f"rope type {rope_type!r} is not supported; supported: {', '.join(SUPPORTED_ROPE_TYPES)}")
    theta = float(settings.get("rope_theta", default_theta))
    if rope_type == "default":
        return RopeSpec(theta)
    if rope_type == "linear":
        return RopeSpec(theta, rope_type, factor=settings["factor"])
    return RopeSpec(
        theta,
        rope_type,
        factor=settings["factor"],
        low_freq_factor=settings["low_freq_factor"],
        high_freq_factor=settings["high_freq_factor"],
        original_max_len=settings["original_max_position_embeddings"],
    )


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotations of a batch's tokens: cos and sin, float32 [num_tokens, 1, rotated dimensions / 2]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, inverse_frequencies: Tensor) -> Rotation:
        """Return the rotation of tokens at `positions`, int [num_tokens].

        Float32 is exact for positions below 2**24.
        """
        angles = torch.outer(positions.float(), inverse_frequencies).unsqueeze(1)
        return cls(angles.cos(), angles.sin())

    def rotate(self, heads: Tensor) -> Tensor:
        """Rotate queries or keys [num_tokens, num_heads, head_dim]; dimension i pairs with i + rotated dimensions / 2.

        The dimensions behind the rotated ones stay.
        """
        size = self.cos.shape[-1]
        if not size:
            return heads
        first, second, *rest = torch.split(heads.float(), size, dim=-1)
        rotated = torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin, *rest), dim=-1)
        return rotated.to(heads.dtype)


Rotations = Mapping[RopeSpec, Rotation]
"""A step's rotation by every rope of a model."""
