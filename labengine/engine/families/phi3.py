"""Phi-3, Phi-3.5 and Phi-4-mini: fused matrices, a window, and LongRoPE (Ding et al. 2024, arXiv 2402.13753)."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from labengine.config import ConfigError
from labengine.engine.families import llama
from labengine.engine.layers import LLAMA_NAMES, Family
from labengine.engine.model_files.config_fields import PartialRopeFields, RopeFields, WindowFields
from labengine.engine.rope import RopeSpec


class Phi3Fields(WindowFields, PartialRopeFields):
    """Phi-3: the number of positions in training is beside the rope's settings."""

    original_max_position_embeddings: Annotated[int, Field(ge=2, le=2**24)] = 4096

    @property
    def rope(self) -> RopeSpec:
        """The rope of all layers, plain or LongRoPE."""
        settings = self.rope_settings
        if settings.kind == "default":
            return super().rope
        if settings.kind != "longrope":
            raise ConfigError(f"rope type {settings.kind!r} is not supported for phi3; supported: default, longrope")
        return RopeSpec(
            settings.rope_theta or self.rope_theta or self.default_theta,
            "longrope",
            original_max_len=self.original_max_position_embeddings,
            share=self.rotary_share,
            short_factors=self._factors("short_factor", settings.short_factor),
            long_factors=self._factors("long_factor", settings.long_factor),
            magnitude=self._magnitude(settings),
        )

    def _factors(self, name: str, factors: list[float] | None) -> tuple[float, ...]:
        num_pairs = int(self.head_size * self.rotary_share) // 2
        if factors is None or len(factors) != num_pairs:
            raise ConfigError(f"{name} must have {num_pairs} numbers, one per rotated pair of a head's dimensions")
        return tuple(factors)

    def _magnitude(self, settings: RopeFields) -> float:
        """Return the file's attention_factor, else the paper's."""
        length = self.original_max_position_embeddings
        factor = settings.factor or self.max_position_embeddings / length
        by_paper = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 else 1.0
        return settings.attention_factor or by_paper


FAMILIES = {
    "phi3": Family(
        Phi3Fields,
        llama.ONLY,
        names={**LLAMA_NAMES, "attention.qkv": ("self_attn.qkv_proj",), "mlp.gate_up": ("mlp.gate_up_proj",)},
    )
}
