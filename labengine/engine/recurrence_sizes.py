"""Sizes of the layers that carry a state from token to token, and the shapes of a request's states."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of a layer's state. is_float32: kept in float32 with any dtype of the model, because it is a sum."""

    name: str
    shape: tuple[int, ...]
    is_float32: bool = False

    def dtype(self, of_model: torch.dtype) -> torch.dtype:
        """Return the tensor's dtype."""
        return torch.float32 if self.is_float32 else of_model

    def num_bytes(self, of_model: torch.dtype) -> int:
        """Return the bytes of one request's tensor."""
        return prod(self.shape) * self.dtype(of_model).itemsize


LayerState = tuple[StateTensor, ...]
"""The state of a layer; empty for a layer with attention."""


def _conv_state(channels: int, kernel: int) -> StateTensor:
    """Return the inputs that the next token's convolution reads besides its own."""
    return StateTensor("conv", (kernel - 1, channels))


@dataclass(frozen=True, slots=True)
class ShortConvSizes:
    """LFM2's short convolution: one filter of `kernel` tokens per channel."""

    channels: int
    kernel: int

    @property
    def state(self) -> LayerState:
        """The last inputs of the convolution."""
        return (_conv_state(self.channels, self.kernel),)


@dataclass(frozen=True, slots=True)
class Mamba2Sizes:
    """Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): heads in groups that share B and C."""

    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    kernel: int
    has_conv_bias: bool

    @property
    def inner_size(self) -> int:
        """Numbers of all heads."""
        return self.num_heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: the heads' inputs, B and C."""
        return self.inner_size + 2 * self.num_groups * self.state_size

    @property
    def state(self) -> LayerState:
        """The last inputs of the convolution, and a matrix per head."""
        matrices = (self.num_heads, self.head_dim, self.state_size)
        return _conv_state(self.channels, self.kernel), StateTensor("matrices", matrices, is_float32=True)


@dataclass(frozen=True, slots=True)
class DeltaNetSizes:
    """A gated delta net (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464); value heads share key heads."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def values_per_key(self) -> int:
        """Value heads that share a key head."""
        return self.num_value_heads // self.num_key_heads

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim

    @property
    def state(self) -> LayerState:
        """The last inputs of the convolution, and a matrix from keys to values per value head."""
        matrices = (self.num_value_heads, self.key_dim, self.value_dim)
        return _conv_state(self.channels, self.kernel), StateTensor("matrices", matrices, is_float32=True)


RecurrenceSizes = ShortConvSizes | Mamba2Sizes | DeltaNetSizes
