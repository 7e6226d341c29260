"""Conversion of GGUF architectures (Llama, Gemma 3) into a model directory of transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.gguf_tokenizers import byte_level_tokenizer, gemma_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

Config = dict[str, Any]
"""The content of config.json, in transformers' terms."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one architecture.

    layer_names: transformers' names of a layer's tensors, by the GGUF's names. config_of: makes config.json from the
    metadata. restored: converts a dequantized tensor to transformers' form, given its GGUF name. tokenizer_of: makes
    the tokenizer from the metadata under "tokenizer.".
    """

    layer_names: Mapping[str, str]
    config_of: Callable[[GGUFReader], Config]
    restored: Callable[[str, NDArray[np.float32], Config], NDArray[np.float32]]
    tokenizer_of: Callable[[Mapping[str, Any]], Tokenizer]


def field(reader: GGUFReader, name: str) -> Any:
    """Return one metadata value; None if the file lacks it."""
    entry = reader.get_field(name)
    return None if entry is None else entry.contents()


def common_config(reader: GGUFReader, architecture: str) -> Config:
    """Return the part of config.json common to all architectures: sizes and special tokens."""
    sizes = {key: field(reader, f"{architecture}.{name}") for key, name in _SIZE_FIELDS.items()}
    head_dim = field(reader, f"{architecture}.attention.key_length")
    tokens = {key: field(reader, f"tokenizer.ggml.{name}") for key, name in TOKEN_FIELDS.items()}
    return {
        "dtype": "bfloat16",
        **sizes,
        "head_dim": head_dim or sizes["hidden_size"] // sizes["num_attention_heads"],
        "vocab_size": len(field(reader, "tokenizer.ggml.tokens")),
        # The file has it as float32: 1e-05 reads back as 9.99999974e-06.
        "rms_norm_eps": float(f"{field(reader, f'{architecture}.attention.layer_norm_rms_epsilon'):.6g}"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        **{key: token for key, token in tokens.items() if token is not None},
    }


_SIZE_FIELDS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}
TOKEN_FIELDS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
"""Names in the GGUF, by those in config.json."""


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


def _llama_config(reader: GGUFReader) -> Config:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        **common_config(reader, "llama"),
        "rope_parameters": {"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base") or 10_000.0},
    }


def _llama_restored(name: str, array: NDArray[np.float32], config: Config) -> NDArray[np.float32]:
    """Reorder q and k: llama.cpp pairs dimensions (2i, 2i + 1) of a head, but transformers (i, i + head_dim / 2)."""
    if ".attn_q." not in name and ".attn_k." not in name:
        return array
    pairs = array.reshape(-1, config["head_dim"] // 2, 2, array.shape[-1])
    return pairs.swapaxes(1, 2).reshape(-1, array.shape[-1])


LLAMA = Conversion(LAYER_NAMES, _llama_config, _llama_restored, byte_level_tokenizer)


GEMMA3_LAYER_NAMES = {
    **LAYER_NAMES,
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

PATTERN = 6
"""Every sixth layer has full attention. The GGUF lacks this number, which is the same in every Gemma 3."""

LOCAL_ROPE_THETA = 10_000.0
"""Base of the rope in layers with a window."""


def _gemma3_config(reader: GGUFReader) -> Config:
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


def _gemma3_restored(name: str, array: NDArray[np.float32], config: Config) -> NDArray[np.float32]:
    """Subtract 1 from norms: llama.cpp multiplies by the weight, but Gemma by 1 + weight."""
    return array - 1 if "_norm." in name else array


GEMMA3 = Conversion(GEMMA3_LAYER_NAMES, _gemma3_config, _gemma3_restored, gemma_tokenizer)
