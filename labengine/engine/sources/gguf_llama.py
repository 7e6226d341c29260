"""Llama out of a GGUF: the rows of q and k in another order, and a byte-level tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labengine.engine.sources.byte_level_tokenizer import byte_level_tokenizer
from labengine.engine.sources.conversion import Config, Conversion, common_config, field

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _config_of(reader: GGUFReader) -> Config:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        **common_config(reader, "llama"),
        "rope_parameters": {"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base") or 10_000.0},
    }


def _restored(name: str, array: NDArray[np.float32], config: Config) -> NDArray[np.float32]:
    """llama.cpp pairs dimensions (2i, 2i + 1) of a head, transformers (i, i + head_dim / 2)."""
    if ".attn_q." not in name and ".attn_k." not in name:
        return array
    pairs = array.reshape(-1, config["head_dim"] // 2, 2, array.shape[-1])
    return pairs.swapaxes(1, 2).reshape(-1, array.shape[-1])


LLAMA = Conversion(LAYER_NAMES, _config_of, _restored, byte_level_tokenizer)
