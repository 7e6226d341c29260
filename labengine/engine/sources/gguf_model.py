"""From a GGUF file of the Llama architecture to a directory that this engine and transformers both load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.errors import SourceError
from labengine.engine.sources.gguf_tokenizer import write_tokenizer

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from torch import Tensor

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
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


def convert(gguf: Path, out: Path, on_bytes: Callable[[int], object]) -> None:
    """Write model.safetensors in bfloat16, config.json, generation_config.json and the tokenizer's files into `out`.

    on_bytes gets the size of each tensor in the GGUF once it is converted. Raises SourceError for another architecture.
    """
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(gguf)
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise SourceError(f"{gguf.name} holds a model of architecture {architecture!r}; only llama is converted")
    config = config_of(reader)
    tensors = {}
    for packed in reader.tensors:
        tensors[hf_name(packed.name)] = _unpack(packed, config)
        on_bytes(int(packed.n_bytes))
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    _write_json(out / "config.json", config)
    _write_json(out / "generation_config.json", {name: config[name] for name in _TOKEN_FIELDS if name in config})
    write_tokenizer(reader, out)


def field(reader: GGUFReader, name: str) -> Any:
    """One metadata value, None when the file has none of that name."""
    entry = reader.get_field(name)
    return None if entry is None else entry.contents()


def config_of(reader: GGUFReader) -> dict[str, Any]:
    """The content of config.json, in the words of transformers."""
    sizes = {key: field(reader, f"llama.{name}") for key, name in _SIZE_FIELDS.items()}
    head_dim = field(reader, "llama.attention.key_length") or sizes["hidden_size"] // sizes["num_attention_heads"]
    tokens = {key: field(reader, f"tokenizer.ggml.{name}") for key, name in _TOKEN_FIELDS.items()}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        **sizes,
        "head_dim": head_dim,
        "vocab_size": len(field(reader, "tokenizer.ggml.tokens")),
        # Written as float32 in the file: 1e-05 reads back as 9.99999974e-06.
        "rms_norm_eps": float(f"{field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base") or 10_000.0},
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
_TOKEN_FIELDS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}


def hf_name(name: str) -> str:
    """The tensor's name in transformers. Raises SourceError for a tensor that plain Llama does not have."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    try:
        _, layer, part, leaf = name.split(".")
        return f"model.layers.{layer}.{LAYER_NAMES[part]}.{leaf}"
    except (ValueError, KeyError):
        raise SourceError(f"the GGUF holds a tensor {name}, which plain Llama does not have") from None


def _unpack(packed: ReaderTensor, config: dict[str, Any]) -> Tensor:
    """Dequantize one tensor to bfloat16, with the rows of q and k in the order that transformers' rope expects."""
    import torch
    from gguf.quants import dequantize

    array = dequantize(packed.data, packed.tensor_type)
    if ".attn_q." in packed.name or ".attn_k." in packed.name:
        array = array.reshape(-1, config["head_dim"] // 2, 2, array.shape[-1])
        # llama.cpp pairs dimensions (2i, 2i + 1) of a head, transformers (i, i + head_dim / 2).
        array = array.swapaxes(1, 2).reshape(-1, array.shape[-1])
    return torch.from_numpy(array.copy()).to(torch.bfloat16)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
