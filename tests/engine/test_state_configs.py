"""config.json of models with states: the sizes that follow from it, and settings that are refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from labengine.config import ConfigError
from labengine.engine.layer_plan import AttentionSpec
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_config import ModelConfig, Multipliers
from labengine.engine.model_files.config_file import load_config
from labengine.engine.recurrence_sizes import DeltaNetSizes, Mamba2Sizes, ShortConvSizes

# Sizes as of large models; the rope beside the other fields, as transformers 4 wrote it.
LFM2: dict[str, Any] = {
    "model_type": "lfm2", "vocab_size": 65536, "hidden_size": 1024, "block_ff_dim": 6656, "intermediate_size": 6656,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "conv_L_cache": 3, "norm_eps": 1e-05,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14], "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0,
    "block_multiple_of": 256, "max_position_embeddings": 128000, "rope_theta": 1000000.0, "conv_bias": False,
    "eos_token_id": 7,
}  # fmt: skip
BAMBA: dict[str, Any] = {
    "model_type": "bamba", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27],
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4,
    "mamba_expand": 2, "rms_norm_eps": 1e-05, "max_position_embeddings": 262144, "rope_theta": 10000.0,
}  # fmt: skip
QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5120,
    "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "head_dim": 256,
    "max_position_embeddings": 262144, "rope_theta": 10000000, "partial_rotary_factor": 0.25, "rope_scaling": None,
    "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
}  # fmt: skip

GRANITE: dict[str, Any] = {
    "model_type": "granitemoehybrid", "vocab_size": 100352, "hidden_size": 1024, "intermediate_size": 512,
    "shared_intermediate_size": 2560, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
    "layer_types": ["mamba", "mamba", "attention", "mamba"], "mamba_n_heads": 32, "mamba_d_head": 64,
    "mamba_d_state": 128, "num_local_experts": 0, "position_embedding_type": "nope", "embedding_multiplier": 12,
    "attention_multiplier": 0.015625, "residual_multiplier": 0.246, "logits_scaling": 4, "rms_norm_eps": 1e-05,
    "max_position_embeddings": 32768, "rope_theta": 10000, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_5_TEXT: dict[str, Any] = {
    **{name: value for name, value in QWEN3_NEXT.items() if name not in ("rope_theta", "rope_scaling")},
    "model_type": "qwen3_5_text", "attn_output_gate": True, "eos_token_id": 248,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}  # fmt: skip

LFM2_MOE: dict[str, Any] = {
    "model_type": "lfm2_moe", "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168,
    "moe_intermediate_size": 1792, "num_hidden_layers": 6, "num_attention_heads": 32, "num_key_value_heads": 8,
    "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "conv"], "num_dense_layers": 2, "num_experts": 32,
    "num_experts_per_tok": 4, "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
    "conv_L_cache": 3, "conv_bias": False, "norm_eps": 1e-05, "max_position_embeddings": 128000,
    "rope_theta": 1000000.0,
}  # fmt: skip


def read(directory: Path, content: dict[str, Any], **changed: Any) -> ModelConfig:
    (directory / "config.json").write_text(json.dumps({**content, **changed}))
    return load_config(directory)


def attending(config: ModelConfig) -> list[int]:
    return [layer for layer, spec in enumerate(config.layers) if isinstance(spec, AttentionSpec)]


def test_lfm2(tmp_path: Path) -> None:
    config = read(tmp_path, LFM2)
    assert config.recurrence == ShortConvSizes(channels=1024, kernel=3)
    assert attending(config) == [2, 5, 8, 10, 12, 14] and config.tie_word_embeddings
    assert config.intermediate_size == 4608, "two thirds of 6,656, rounded up to a multiple of 256"
    (rope,) = config.ropes
    assert (rope.theta, rope.share) == (1e6, 1.0)


@pytest.mark.parametrize(
    ("changed", "size"),
    [
        ({"block_auto_adjust_ff_dim": False}, 6656),
        ({"block_ffn_dim_multiplier": 1.5, "block_multiple_of": 100}, 6700),
        ({"block_ff_dim": 3000, "block_auto_adjust_ff_dim": False}, 3000),
    ],
)
def test_lfm2s_mlp_is_as_large_as_in_transformers(tmp_path: Path, changed: dict[str, Any], size: int) -> None:
    from transformers import Lfm2Config
    from transformers.models.lfm2.modeling_lfm2 import Lfm2MLP

    assert read(tmp_path, LFM2, **changed).intermediate_size == size
    assert Lfm2MLP(Lfm2Config(**{**LFM2, "hidden_size": 16, **changed})).w1.out_features == size


def test_bamba(tmp_path: Path) -> None:
    config = read(tmp_path, BAMBA)
    assert config.recurrence == Mamba2Sizes(128, 64, 1, 128, 4, has_conv_bias=True)
    assert attending(config) == [9, 18, 27]
    (rope,) = config.ropes
    assert rope.rotated_dims(config.head_dim) == 64 and config.head_dim == 128
    conv, matrices = config.states[0]
    assert (conv.shape, matrices.shape) == ((3, 8448), (128, 64, 128))


def test_qwen3_next(tmp_path: Path) -> None:
    config = read(tmp_path, QWEN3_NEXT)
    assert config.recurrence == DeltaNetSizes(16, 32, 128, 128, 4)
    assert attending(config) == [3, 7]
    (rope,) = config.ropes
    assert (rope.theta, rope.rotated_dims(config.head_dim)) == (1e7, 64)


def test_granite_4(tmp_path: Path) -> None:
    config = read(tmp_path, GRANITE)
    assert config.recurrence == Mamba2Sizes(32, 64, 1, 128, 4, has_conv_bias=True)
    assert attending(config) == [2] and config.intermediate_size == 2560
    assert (config.attention_scale, config.multipliers) == (0.015625, Multipliers(12, 0.246, 4))
    (rope,) = config.ropes
    assert rope.rotated_dims(config.head_dim) == 0
    (rope,) = read(tmp_path, GRANITE, position_embedding_type="rope").ropes
    assert rope.rotated_dims(config.head_dim) == config.head_dim


@pytest.mark.parametrize("is_tied", [False, True])
def test_qwen3_5_with_and_without_its_vision_model(tmp_path: Path, is_tied: bool) -> None:
    both = {"model_type": "qwen3_5", "text_config": QWEN3_5_TEXT, "tie_word_embeddings": is_tied, "vision_config": {}}
    for content in (both, {**QWEN3_5_TEXT, "tie_word_embeddings": is_tied}):
        config = read(tmp_path, content)
        assert config.recurrence == DeltaNetSizes(16, 32, 128, 128, 4) and attending(config) == [3, 7]
        assert (config.tie_word_embeddings, config.eos_token_ids) == (is_tied, {248})
        (rope,) = config.ropes
        assert (rope.theta, rope.rotated_dims(config.head_dim)) == (1e7, 64)


def test_experts_of_qwen3_next(tmp_path: Path) -> None:
    mixture = read(tmp_path, QWEN3_NEXT).mixture
    assert mixture == MixtureSizes(frozenset(range(8)), 512, 10, 512, 512, has_shared_gate=True)
    dense = read(tmp_path, QWEN3_NEXT, mlp_only_layers=[0, 5], decoder_sparse_step=2).mixture
    assert dense is not None and dense.layers == {1, 3, 7}


def test_experts_of_qwen3_5(tmp_path: Path) -> None:
    """All layers, with weights that add up to 1, whatever the file says; nothing says how large dense ones would be."""
    text = {name: value for name, value in QWEN3_5_TEXT.items() if name != "intermediate_size"}
    text |= {"num_experts": 256, "num_experts_per_tok": 8, "norm_topk_prob": False, "mlp_only_layers": [1]}
    both = {"model_type": "qwen3_5_moe", "text_config": {**text, "model_type": "qwen3_5_moe_text"}, "vision_config": {}}
    for content in (both, {**text, "model_type": "qwen3_5_moe_text"}):
        config = read(tmp_path, content)
        assert config.mixture == MixtureSizes(frozenset(range(8)), 256, 8, 512, 512, has_shared_gate=True)
        assert attending(config) == [3, 7] and config.intermediate_size == 512


def test_experts_of_granite_4(tmp_path: Path) -> None:
    config = read(tmp_path, GRANITE, num_local_experts=64, num_experts_per_tok=6)
    assert config.mixture == MixtureSizes(frozenset(range(4)), 64, 6, 512, 2560)
    assert read(tmp_path, GRANITE).mixture is None


def test_experts_of_lfm2(tmp_path: Path) -> None:
    config = read(tmp_path, LFM2_MOE)
    assert config.mixture == MixtureSizes(frozenset({2, 3, 4, 5}), 32, 4, 1792, has_bias=True)
    assert config.intermediate_size == 7168, "it is not adjusted"
    assert (config.recurrence, config.tie_word_embeddings) == (ShortConvSizes(2048, 3), True)
    (rope,) = read(tmp_path, {name: value for name, value in LFM2_MOE.items() if name != "rope_theta"}).ropes
    assert rope.theta == 1e6


@pytest.mark.parametrize("high", [math.inf, {"__float__": "Infinity"}])
def test_an_unlimited_step_is_written_in_two_ways(tmp_path: Path, high: Any) -> None:
    assert read(tmp_path, BAMBA, time_step_limit=[0.0, high]).has_states


@pytest.mark.parametrize(
    ("content", "changed", "message"),
    [
        (LFM2, {"conv_bias": True}, "conv_bias must be False for lfm2, got True"),
        (LFM2, {"layer_types": ["conv", "mamba"] * 8}, r"layer_types\[1\] must be 'full_attention' or 'conv'"),
        (LFM2, {"layer_types": ["conv"] * 3}, "layer_types .* 3 layers.*num_hidden_layers is 16"),
        (LFM2, {"partial_rotary_factor": 0.5}, "partial_rotary_factor "),
        (BAMBA, {"mamba_proj_bias": True}, "mamba_proj_bias must be False for bamba, got True"),
        (BAMBA, {"time_step_limit": [0.0, 0.1]}, "time_step_limit "),
        (BAMBA, {"mamba_d_head": 32}, r"128 \* 32.* 8192"),
        (BAMBA, {"mamba_n_groups": 3}, "mamba_n_heads .*mamba_n_groups.* 128 and 3"),
        (BAMBA, {"rope_scaling": {"type": "yarn"}}, "rope type 'yarn' "),
        (GRANITE, {"num_local_experts": 64, "num_experts_per_tok": 65}, "num_experts_per_tok .* 65 of 64"),
        (QWEN3_NEXT, {"num_experts": 8}, "num_experts_per_tok .* 10 of 8"),
        (QWEN3_NEXT, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        (QWEN3_NEXT, {"linear_num_value_heads": 20}, "linear_num_key_heads.* 20 and 16"),
        (QWEN3_NEXT, {"partial_rotary_factor": 0.013}, "partial_rotary_factor 0.013 .* 3 of 256 "),
        (QWEN3_NEXT, {"attention_bias": True}, "attention_bias must be .* for qwen3_next, got True"),
        (QWEN3_5_TEXT, {"attn_output_gate": False}, "attn_output_gate must be .* for qwen3_5_text, got False"),
    ],
)
def test_settings_we_cannot_compute(
    tmp_path: Path, content: dict[str, Any], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, content, **changed)


def test_layers_without_experts_are_taken(tmp_path: Path) -> None:
    for settings in ({"num_experts": 0}, {"mlp_only_layers": list(range(8))}, {"decoder_sparse_step": 9}):
        assert read(tmp_path, QWEN3_NEXT, **settings).mixture is None
