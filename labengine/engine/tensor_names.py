"""Names of tensors in the files of each family: a layer's parts here, and what is stacked in each, top to bottom.

"norm" is the model's last norm, whose name is below `model` (or the family's root), as a layer's are below
`model.layers.N`. A name with "{}" is that of each expert by number. A key that ends with the parameter's own name gives
whole names; where files differ, their form with a whole name is used if they have it.
"""

from __future__ import annotations

from collections.abc import Mapping

Names = Mapping[str, tuple[str, ...]]

LLAMA_NAMES = {
    "norm": ("norm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.o_proj",),
    "attention.q_norm": ("self_attn.q_norm",),
    "attention.k_norm": ("self_attn.k_norm",),
    "attention_norm": ("input_layernorm",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down": ("mlp.down_proj",),
}

MIXTRAL_NAMES = {
    **LLAMA_NAMES,
    "mlp.router": ("block_sparse_moe.gate",),
    "mlp.experts.gate_up": ("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
    "mlp.experts.down": ("block_sparse_moe.experts.{}.w2",),
}

QWEN_NAMES = {
    **LLAMA_NAMES,
    "mlp.router": ("mlp.gate",),
    "mlp.experts.gate_up": ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"),
    "mlp.experts.gate_up.weight": ("mlp.experts.gate_up_proj",),
    "mlp.experts.down": ("mlp.experts.{}.down_proj",),
    "mlp.experts.down.weight": ("mlp.experts.down_proj",),
    "mlp.shared.gate_up": ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
    "mlp.shared.down": ("mlp.shared_expert.down_proj",),
    "mlp.shared_gate": ("mlp.shared_expert_gate",),
}
"""Qwen3.5's files have the experts of a layer in one tensor, the others' one tensor per expert."""

GEMMA3_NAMES = {
    **LLAMA_NAMES,
    "attended_norm": ("post_attention_layernorm",),
    "mlp_norm": ("pre_feedforward_layernorm",),
    "mlp_out_norm": ("post_feedforward_layernorm",),
}


LFM2_NAMES = {
    "norm": ("embedding_norm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "attention.q_norm": ("self_attn.q_layernorm",),
    "attention.k_norm": ("self_attn.k_layernorm",),
    "attention_norm": ("operator_norm",),
    "mixer.inputs": ("conv.in_proj",),
    "mixer.conv": ("conv.conv",),
    "mixer.out": ("conv.out_proj",),
    "mixer_norm": ("operator_norm",),
    "mlp_norm": ("ffn_norm",),
    "mlp.gate_up": ("feed_forward.w1", "feed_forward.w3"),
    "mlp.down": ("feed_forward.w2",),
    "mlp.router": ("feed_forward.gate",),
    "mlp.router.expert_bias": ("feed_forward.expert_bias",),
    "mlp.experts.gate_up": ("feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"),
    "mlp.experts.down": ("feed_forward.experts.{}.w2",),
}

BAMBA_NAMES = {
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

GRANITE_HYBRID_NAMES = {
    **BAMBA_NAMES,
    "norm": ("norm",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("shared_mlp.input_linear",),
    "mlp.down": ("shared_mlp.output_linear",),
    "mlp.router": ("block_sparse_moe.router.layer",),
    "mlp.experts.gate_up": ("block_sparse_moe.input_linear",),
    "mlp.experts.down": ("block_sparse_moe.output_linear",),
    "mlp.shared.gate_up": ("shared_mlp.input_linear",),
    "mlp.shared.down": ("shared_mlp.output_linear",),
}

QWEN3_NEXT_NAMES = {
    **QWEN_NAMES,
    "mixer": ("linear_attn",),
    "mixer.qkvz": ("linear_attn.in_proj_qkvz",),
    "mixer.ba": ("linear_attn.in_proj_ba",),
    "mixer.conv": ("linear_attn.conv1d",),
    "mixer.norm": ("linear_attn.norm",),
    "mixer.out": ("linear_attn.out_proj",),
    "mixer_norm": ("input_layernorm",),
}

QWEN3_5_NAMES = {
    **QWEN_NAMES,
    "mixer": ("linear_attn",),
    "mixer.inputs": (
        "linear_attn.in_proj_qkv",
        "linear_attn.in_proj_z",
        "linear_attn.in_proj_b",
        "linear_attn.in_proj_a",
    ),
    "mixer.conv": ("linear_attn.conv1d",),
    "mixer.norm": ("linear_attn.norm",),
    "mixer.out": ("linear_attn.out_proj",),
    "mixer_norm": ("input_layernorm",),
}
