"""Gemma 3's text model out of a GGUF: norms that had 1 added, and what the file leaves unsaid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labengine.engine.sources.conversion import Config, Conversion, common_config, field
from labengine.engine.sources.gemma_tokenizer import gemma_tokenizer
from labengine.engine.sources.gguf_llama import LAYER_NAMES

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray

GEMMA3_LAYER_NAMES = {
    **LAYER_NAMES,
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

PATTERN = 6
"""Every sixth layer attends to everything. The GGUF does not say so: it is so in every Gemma 3, and so is the next."""

LOCAL_ROPE_THETA = 10_000.0
"""The base of the rope in layers with a window."""


def _config_of(reader: GGUFReader) -> Config:
    config = common_config(reader, "gemma3")
    is_full = [(layer + 1) % PATTERN == 0 for layer in range(config["num_hidden_layers"])]
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        **config,
        "query_pre_attn_scalar": config["head_dim"],  # of all but the 27B model
        "sliding_window": field(reader, "gemma3.attention.sliding_window"),
        "layer_types": ["full_attention" if full else "sliding_attention" for full in is_full],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": LOCAL_ROPE_THETA},
            "full_attention": {"rope_type": "default", "rope_theta": field(reader, "gemma3.rope.freq_base") or 1e6},
        },
    }


def _restored(name: str, array: NDArray[np.float32], config: Config) -> NDArray[np.float32]:
    """llama.cpp's norms multiply by the weight, Gemma's by 1 + weight."""
    return array - 1 if "_norm." in name else array


GEMMA3 = Conversion(GEMMA3_LAYER_NAMES, _config_of, _restored, gemma_tokenizer)
