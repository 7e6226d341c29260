"""The schema of config.json of each family without states and experts, and the table of all schemas."""

from __future__ import annotations

from labengine.engine.model_files.config_fields import ConfigFields, Count, HeadDim, Positive, RopeByKind, Theta
from labengine.engine.model_files.config_mixtures import (
    GraniteHybridFields,
    Lfm2MoeFields,
    MixtralFields,
    Qwen3_5MoeFields,
    Qwen3MoeFields,
    Qwen3NextFields,
)
from labengine.engine.model_files.config_states import BambaFields, DeltaNetFields, Lfm2Fields


class Qwen3Fields(ConfigFields):
    """Qwen3: a default head size."""

    head_dim: HeadDim | None = 128


class Gemma3Fields(ConfigFields):
    """Gemma 3: two ropes, windows in a pattern, and its own attention scale."""

    head_dim: HeadDim | None = 256
    tie_word_embeddings: bool = True
    query_pre_attn_scalar: Positive = 256
    sliding_window_pattern: Count | None = None
    rope_local_base_freq: Theta | None = None
    rope_parameters: RopeByKind | None = None  # type: ignore[assignment]


SCHEMAS: dict[str, type[ConfigFields]] = {
    "llama": ConfigFields,
    "mistral": ConfigFields,
    "mixtral": MixtralFields,
    "qwen3": Qwen3Fields,
    "qwen3_moe": Qwen3MoeFields,
    "gemma3_text": Gemma3Fields,
    "lfm2": Lfm2Fields,
    "lfm2_moe": Lfm2MoeFields,
    "bamba": BambaFields,
    "granitemoehybrid": GraniteHybridFields,
    "qwen3_next": Qwen3NextFields,
    "qwen3_5_text": DeltaNetFields,
    "qwen3_5": DeltaNetFields,
    "qwen3_5_moe_text": Qwen3_5MoeFields,
    "qwen3_5_moe": Qwen3_5MoeFields,
}
"""Schemas of config.json by model_type."""
