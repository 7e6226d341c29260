"""Tiny random models with states, made by transformers: one per kind of recurrence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COMMON = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
LFM2 = {"num_hidden_layers": 5, "full_attn_idxs": [1, 4], "block_multiple_of": 8, "conv_L_cache": 4}
BAMBA = {
    "num_hidden_layers": 4,
    "attn_layer_indices": [2],
    "mamba_n_heads": 8,
    "mamba_d_head": 12,
    "mamba_n_groups": 2,
    "mamba_d_state": 10,
    "mamba_d_conv": 4,
    "mamba_chunk_size": 16,
}
GRANITE = {
    **{name: value for name, value in BAMBA.items() if name != "attn_layer_indices"},
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "num_local_experts": 0,
    "shared_intermediate_size": 72,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.2,
    "logits_scaling": 2.5,
}
QWEN3_NEXT = {
    "initializer_range": 0.06,
    "num_hidden_layers": 5,
    "full_attention_interval": 3,
    "head_dim": 16,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lfm2": {**COMMON, **LFM2},
    "bamba": {**COMMON, **BAMBA},
    "granitemoehybrid": {**COMMON, **GRANITE},
    "qwen3_next": {**COMMON, **QWEN3_NEXT, "num_experts": 0},
    "qwen3_5_text": {**COMMON, **QWEN3_NEXT},
}


def save_state_model(family: str, directory: Path, **settings: Any) -> Path:
    """Save a random model whose norms, decays and step sizes differ from number to number."""
    import torch
    import transformers

    config_class, model_class = {
        "lfm2": (transformers.Lfm2Config, transformers.Lfm2ForCausalLM),
        "bamba": (transformers.BambaConfig, transformers.BambaForCausalLM),
        "granitemoehybrid": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM),
        "qwen3_next": (transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM),
        "qwen3_5_text": (transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM),
        "qwen3_5": (_multimodal, transformers.Qwen3_5ForConditionalGeneration),
    }[family]
    text_of = {"qwen3_5": "qwen3_5_text"}
    torch.manual_seed(0)
    model = model_class(config_class(**{**SETTINGS[text_of.get(family, family)], **settings}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_offset = family.startswith("qwen3_") and "linear_attn" not in name  # its norms multiply by 1 + weight
            if "norm" in name:
                parameter.uniform_(-0.5, 0.5).add_(not is_offset)
            elif name.endswith(("A_log", "dt_bias")):
                parameter.uniform_(-1.5, 1.0)
            elif name.endswith((".D", "conv1d.weight", "conv1d.bias", "conv.weight")):
                parameter.uniform_(-0.8, 0.8)
    model.save_pretrained(directory)
    return directory


def _multimodal(*, tie_word_embeddings: bool = False, **text: Any) -> Any:
    """Return a configuration whose language model is that of the text alone."""
    import transformers

    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "num_position_embeddings": 4}
    tokens = {"image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}
    return transformers.Qwen3_5Config(
        text_config={**text, "tie_word_embeddings": tie_word_embeddings},
        vision_config={**vision, "out_hidden_size": text["hidden_size"]},
        tie_word_embeddings=tie_word_embeddings,
        **tokens,
    )
