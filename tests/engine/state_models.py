"""Tiny random models with states or mixtures of experts, made by transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
DELTA_NETS = {
    "initializer_range": 0.06,
    "num_hidden_layers": 5,
    "full_attention_interval": 3,
    "head_dim": 16,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 28}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 36}
LFM2_MOE = {
    "num_hidden_layers": 5,
    "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
    "conv_L_cache": 4,
    "num_dense_layers": 2,
    "routed_scaling_factor": 1.5,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lfm2": {**COMMON, **LFM2},
    "lfm2_moe": {**COMMON, **EXPERTS, **LFM2_MOE},
    "bamba": {**COMMON, **BAMBA},
    "granitemoehybrid": {**COMMON, **GRANITE},
    "granitemoehybrid, experts": {**COMMON, **GRANITE, "num_local_experts": 6, "num_experts_per_tok": 3},
    "qwen3_next": {**COMMON, **DELTA_NETS, **SHARED, "mlp_only_layers": [1]},
    "qwen3_5_text": {**COMMON, **DELTA_NETS},
    "qwen3_5_moe_text": {**COMMON, **DELTA_NETS, **SHARED},
}
"""Models with states, by model_type, and by what else they have where that is not enough."""
EACH_KIND = ("lfm2", "bamba", "qwen3_next")
"""One model per kind of state: a convolution's, Mamba-2's, which a chunk can leave inside it, and a delta net's."""


def models() -> list[Any]:
    """Return the models as parameters, one of each kind at every change, the others with the sweeps."""
    return [pytest.param(name, marks=[] if name in EACH_KIND else pytest.mark.sweep) for name in SETTINGS]


WITHOUT_STATES: dict[str, dict[str, Any]] = {
    "mixtral": {**COMMON, "num_hidden_layers": 3, "num_local_experts": 5, "num_experts_per_tok": 2},
    "qwen3_moe": {**COMMON, **EXPERTS, "num_hidden_layers": 3, "head_dim": 16, "decoder_sparse_step": 2},
    "granitemoehybrid, attention": {
        **{name: value for name, value in COMMON.items() if name != "num_hidden_layers"},
        **GRANITE,
        "layer_types": ["full_attention"] * 4,
        "position_embedding_type": "rope",
    },
}


def save_state_model(name: str, directory: Path, **settings: Any) -> Path:
    """Save a random model whose norms, decays, step sizes and biases differ from number to number."""
    import torch
    import transformers

    family = name.partition(",")[0]
    config_class, model_class = {
        "lfm2": (transformers.Lfm2Config, transformers.Lfm2ForCausalLM),
        "lfm2_moe": (transformers.Lfm2MoeConfig, transformers.Lfm2MoeForCausalLM),
        "bamba": (transformers.BambaConfig, transformers.BambaForCausalLM),
        "granitemoehybrid": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM),
        "qwen3_next": (transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM),
        "qwen3_5_text": (transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM),
        "qwen3_5": (multimodal(transformers.Qwen3_5Config), transformers.Qwen3_5ForConditionalGeneration),
        "qwen3_5_moe_text": (transformers.Qwen3_5MoeTextConfig, transformers.Qwen3_5MoeForCausalLM),
        "qwen3_5_moe": (multimodal(transformers.Qwen3_5MoeConfig), transformers.Qwen3_5MoeForConditionalGeneration),
        "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
        "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    }[family]
    text_of = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
    torch.manual_seed(0)
    known = {**SETTINGS, **WITHOUT_STATES}[text_of.get(name, name)]
    model = model_class(config_class(**{**known, **settings}))
    is_delta_net = family.startswith(("qwen3_5", "qwen3_next"))
    with torch.no_grad():
        for key, tensor in (*model.named_parameters(), *model.named_buffers()):
            if "norm" in key:
                is_offset = is_delta_net and "linear_attn" not in key  # its norms multiply by 1 + weight
                tensor.uniform_(-0.5, 0.5).add_(not is_offset)
            elif key.endswith(("A_log", "dt_bias")):
                tensor.uniform_(-1.5, 1.0)
            elif key.endswith((".D", "conv1d.weight", "conv1d.bias", "conv.weight", "expert_bias")):
                tensor.uniform_(-0.8, 0.8)
            elif key.endswith((".gate.weight", ".router.weight", "shared_expert_gate.weight")):
                tensor.uniform_(-0.5, 0.5)
    model.save_pretrained(directory)
    return directory


def multimodal(config_class: Any) -> Callable[..., Any]:
    """Return a function that makes a configuration with the language model of the text-only one."""
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "num_position_embeddings": 4}
    tokens = {"image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}

    def make(*, tie_word_embeddings: bool = False, **text: Any) -> Any:
        return config_class(
            text_config={**text, "tie_word_embeddings": tie_word_embeddings},
            vision_config={**vision, "out_hidden_size": text["hidden_size"]},
            tie_word_embeddings=tie_word_embeddings,
            **tokens,
        )

    return make
