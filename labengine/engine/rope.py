"""Rotary position embedding: the angle of each pair of a head's dimensions, and the rotation itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """A model's rope: its base, and its scaling to a longer context than in training."""

    theta: float
    rope_type: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192
    share: float = 1.0
    """The leading part of each head that is rotated."""
    short_factors: tuple[float, ...] = ()
    """LongRoPE's divisors, one per rotated pair, for requests of at most original_max_len positions; else empty."""
    long_factors: tuple[float, ...] = ()
    """The same for requests that may become longer."""
    is_long: bool = False
    """True if the long factors are used."""
    magnitude: float = 1.0
    """Factor of the rotated dimensions."""

    def for_length(self, max_model_len: int) -> RopeSpec:
        """Return the rope for requests of at most max_model_len positions.

        One set of factors serves all requests, as in vLLM 0.32, because cached keys were rotated by it.
        """
        return replace(self, is_long=max_model_len > self.original_max_len) if self.long_factors else self

    def rotated_dims(self, head_dim: int) -> int:
        """Return the number of rotated dimensions of a head."""
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
        if self.rope_type == "longrope":
            return frequencies / torch.tensor(self.long_factors if self.is_long else self.short_factors)
        return frequencies

    def _scale_slow_waves(self, frequencies: Tensor) -> Tensor:
        """Scale slow waves like Llama 3.1.

        Fast ones do not change, the slowest are divided by `factor`, and those in between are blended.
        """
        num_waves = self.original_max_len * frequencies / (2 * math.pi)
        keep = (num_waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return torch.lerp(frequencies / self.factor, frequencies, keep.clamp(0.0, 1.0))


NO_ROPE = RopeSpec(1.0, share=0.0)
"""No rotation: the layers with a state provide the position (Granite 4)."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotations of a batch's tokens: cos and sin, float32 [num_tokens, 1, rotated dimensions / 2]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, inverse_frequencies: Tensor, magnitude: float = 1.0) -> Rotation:
        """Return the rotation of tokens at `positions`, int [num_tokens].

        magnitude: RopeSpec.magnitude. Float32 is exact for positions below 2**24.
        """
        angles = torch.outer(positions.float(), inverse_frequencies).unsqueeze(1)
        return cls(angles.cos() * magnitude, angles.sin() * magnitude)

    def rotate(self, heads: Tensor) -> Tensor:
        """Rotate queries or keys [num_tokens, num_heads, head_dim]; dimension i pairs with i + rotated dimensions / 2.

        The dimensions after the rotated ones do not change.
        """
        size = self.cos.shape[-1]
        if not size:
            return heads
        first, second, *rest = torch.split(heads.float(), size, dim=-1)
        rotated = torch.cat((first * self.cos - second * self.sin, second * self.cos + first * self.sin, *rest), dim=-1)
        return rotated.to(heads.dtype)


Rotations = Mapping[RopeSpec, Rotation]
"""A step's rotation by every rope of a model."""
