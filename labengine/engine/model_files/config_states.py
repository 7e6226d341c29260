"""Schemas of config.json of the families with states: short convolutions, Mamba-2 and gated delta nets."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from labengine.engine.model_files.config_fields import ConfigFields, Count, Eps, HeadDim, Kernel, Positive, Size
from labengine.engine.model_files.json_file import relation_error
from labengine.engine.recurrence_sizes import DeltaNetSizes, Mamba2Sizes, ShortConvSizes


class Lfm2Fields(ConfigFields):
    """LFM2: short convolutions beside full attention. Older files have other names for some sizes, which go first."""

    rms_norm_eps: Eps = Field(1e-5, alias="norm_eps")
    tie_word_embeddings: bool = True
    tie_embedding: bool | None = None
    block_ff_dim: Size | None = None
    block_auto_adjust_ff_dim: bool = True
    block_ffn_dim_multiplier: Positive = 1.0
    block_multiple_of: Size = 256
    conv_L_cache: Kernel = 3
    full_attn_idxs: list[Annotated[int, Field(ge=0)]] | None = None
    layer_types: Annotated[list[Literal["full_attention", "conv"]], Field(min_length=1)] | None = None  # type: ignore[assignment]

    @property
    def mlp_size(self) -> int:
        """Two thirds of the size in the file, rounded up to a multiple, if it is to be adjusted."""
        size = self.block_ff_dim or self.intermediate_size
        if not self.block_auto_adjust_ff_dim:
            return size
        size = int(self.block_ffn_dim_multiplier * int(2 * size / 3))
        return -(-size // self.block_multiple_of) * self.block_multiple_of

    @property
    def is_tied(self) -> bool:
        """True if the output matrix is the embedding."""
        return self.tie_word_embeddings if self.tie_embedding is None else self.tie_embedding

    @property
    def recurrence(self) -> ShortConvSizes:
        """The sizes of the short convolutions."""
        return ShortConvSizes(self.hidden_size, self.conv_L_cache)


class Mamba2Fields(ConfigFields):
    """The sizes of Mamba-2 layers."""

    mamba_n_heads: Count = 128
    mamba_d_head: Size | Literal["auto"] | None = "auto"
    mamba_n_groups: Count = 1
    mamba_d_state: Size = 256
    mamba_d_conv: Kernel = 4
    mamba_expand: Count = 2
    mamba_conv_bias: bool = True
    time_step_limit: list[Any] = Field(default_factory=lambda: [0.0, math.inf])

    @model_validator(mode="after")
    def _steps_are_unlimited(self) -> Self:
        low, high = [*self.time_step_limit, None, None][:2]
        if low != 0.0 or high not in (math.inf, {"__float__": "Infinity"}):
            raise relation_error("time_step_limit other than 0 to infinity is not supported")
        return self

    @model_validator(mode="after")
    def _mamba_sizes_agree(self) -> Self:
        inner, heads = self.mamba_expand * self.hidden_size, self.mamba_n_heads
        if inner != heads * self._mamba_head_dim:
            text = "mamba_expand * hidden_size is {inner}, which is not mamba_n_heads * mamba_d_head: {heads} * {dim}"
            raise relation_error(text, inner=inner, heads=heads, dim=self._mamba_head_dim)
        if heads % self.mamba_n_groups:
            text = "mamba_n_heads should be a multiple of mamba_n_groups, got {heads} and {groups}"
            raise relation_error(text, heads=heads, groups=self.mamba_n_groups)
        return self

    @property
    def _mamba_head_dim(self) -> int:
        given = self.mamba_d_head
        return given if isinstance(given, int) else self.mamba_expand * self.hidden_size // self.mamba_n_heads

    @property
    def recurrence(self) -> Mamba2Sizes:
        """The sizes of the Mamba-2 layers."""
        return Mamba2Sizes(
            num_heads=self.mamba_n_heads,
            head_dim=self._mamba_head_dim,
            num_groups=self.mamba_n_groups,
            state_size=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            has_conv_bias=self.mamba_conv_bias,
        )


class BambaFields(Mamba2Fields):
    """Bamba: Mamba-2 layers, and a few with attention, which are named by number."""

    rms_norm_eps: Eps = 1e-5
    attn_layer_indices: list[Annotated[int, Field(ge=0)]] | None = None


class DeltaNetFields(ConfigFields):
    """Qwen3.5: gated delta nets, and attention in every few layers."""

    head_dim: HeadDim | None = 256
    full_attention_interval: Count = 4
    layer_types: Annotated[list[Literal["full_attention", "linear_attention"]], Field(min_length=1)] | None = None  # type: ignore[assignment]
    linear_conv_kernel_dim: Kernel = 4
    linear_key_head_dim: Size = 128
    linear_value_head_dim: Size = 128
    linear_num_key_heads: Count = 16
    linear_num_value_heads: Count = 32

    @model_validator(mode="after")
    def _value_heads_divide(self) -> Self:
        values, keys = self.linear_num_value_heads, self.linear_num_key_heads
        if values % keys:
            text = "linear_num_value_heads should be a multiple of linear_num_key_heads, got {values} and {keys}"
            raise relation_error(text, values=values, keys=keys)
        return self

    @property
    def recurrence(self) -> DeltaNetSizes:
        """The sizes of the gated delta nets."""
        return DeltaNetSizes(
            num_key_heads=self.linear_num_key_heads,
            num_value_heads=self.linear_num_value_heads,
            key_dim=self.linear_key_head_dim,
            value_dim=self.linear_value_head_dim,
            kernel=self.linear_conv_kernel_dim,
        )
