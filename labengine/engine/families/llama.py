"""Llama and Mistral."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from labengine.engine.layers import Family
from labengine.engine.model_files.config_fields import ConfigFields, WindowFields

ONLY = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


class LlamaFields(ConfigFields):
    """Llama: full attention only."""

    layer_types: Annotated[list[Literal["full_attention"]], Field(min_length=1)] | None = None  # type: ignore[assignment]


FAMILIES = {"llama": Family(LlamaFields, ONLY), "mistral": Family(WindowFields, ONLY)}
