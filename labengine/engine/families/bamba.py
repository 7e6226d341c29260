"""Bamba: Mamba-2 layers, and a few with attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from labengine.engine.families import llama
from labengine.engine.layer_plan import FULL, LINEAR
from labengine.engine.layers import LLAMA_NAMES, Family
from labengine.engine.mixers import Mamba2
from labengine.engine.model_files.config_fields import ConfigFields, Count, Eps, Kernel, PartialRopeFields, Size
from labengine.engine.model_files.json_file import relation_error
from labengine.engine.recurrence_sizes import Mamba2Sizes


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
            raise relation_error("time_step_limit must be 0 to infinity")
        return self

    @model_validator(mode="after")
    def _mamba_sizes_agree(self) -> Self:
        inner, heads = self.mamba_expand * self.hidden_size, self.mamba_n_heads
        if inner != heads * self._mamba_head_dim:
            text = "mamba_expand * hidden_size must be mamba_n_heads * mamba_d_head ({heads} * {dim}), got {inner}"
            raise relation_error(text, inner=inner, heads=heads, dim=self._mamba_head_dim)
        if heads % self.mamba_n_groups:
            text = "mamba_n_heads must be a multiple of mamba_n_groups, got {heads} and {groups}"
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


class BambaFields(Mamba2Fields, PartialRopeFields):
    """Bamba: layers with attention are listed by number."""

    default_share: ClassVar = 0.5
    rms_norm_eps: Eps = 1e-5
    attn_layer_indices: list[Annotated[int, Field(ge=0)]] | None = None

    @property
    def layer_kinds(self) -> Sequence[str]:
        """Mamba-2 in all layers but those with attention; layer_types is ignored."""
        attending = self.attn_layer_indices or ()
        return [FULL if layer in attending else LINEAR for layer in range(self.num_hidden_layers)]

    @property
    def share_in_file(self) -> float | None:
        """The share in rope_parameters alone, as transformers ignores one beside it."""
        return self.rope_settings.partial_rotary_factor


NAMES = {
    **LLAMA_NAMES,
    "norm": ("final_layernorm",),
    "mixer": ("mamba",),
    "mixer.inputs": ("mamba.in_proj",),
    "mixer.conv": ("mamba.conv1d",),
    "mixer.norm": ("mamba.norm",),
    "mixer.out": ("mamba.out_proj",),
    "mixer_norm": ("input_layernorm",),
    "mlp_norm": ("pre_ff_layernorm",),
    "mlp.gate_up": ("feed_forward.gate_proj", "feed_forward.up_proj"),
    "mlp.down": ("feed_forward.down_proj",),
}
ONLY = {**llama.ONLY, "mamba_proj_bias": False}

FAMILIES = {"bamba": Family(BambaFields, ONLY, mixer=Mamba2, names=NAMES)}
