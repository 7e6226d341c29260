"""Small packages with the layout of the real models': wheels with the GGUF of a tiny model, complete or in parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
from gguf import GGUFWriter, TokenType

from labengine.engine.sources.catalogue import WheelMember, WheelModel

MEMBER = "tiny_model/tiny.gguf"
TOKENS = ["<|endoftext|>", "<|im_end|>", *"abcdefgh", "Ġ", "ab", "Ġa"]
MERGES = ["a b", "Ġ a"]
GEMMA_TOKENS = {
    TokenType.CONTROL: ["<pad>", "<eos>", "<bos>", "<unk>"],
    TokenType.USER_DEFINED: ["\n\n", "  ", "[x]"],
    TokenType.BYTE: ["<0xC3>", "<0xA9>"],
    TokenType.NORMAL: [*"abcdefgh▁\n<0xC3>", "ab", "▁a", "▁ab", "abc", "bc", "<0", "<0x", "<0xC", "3>"],
}
"""By type, in the order of their ids; "  " stands for two spaces, which BPE has to spell ▁▁."""
Names = dict[str, str]
LLAMA_NAMES: Names = {
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
GEMMA_NAMES: Names = {
    **LLAMA_NAMES,
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def write_gguf(path: Path, model_dir: Path) -> None:
    """Write a transformers Llama as a GGUF, by the rules of llama.cpp: q and k with interleaved rope pairs."""
    config = _config(model_dir)
    writer = _writer(path, "llama", config)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    writer.add_token_types([TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(TOKENS) - 2))
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")
    _finish(writer, model_dir, LLAMA_NAMES, lambda name, tensor: _interleaved(name, tensor, config))


def write_gemma_gguf(path: Path, model_dir: Path) -> None:
    """Write a transformers Gemma 3 as a GGUF, by the rules of llama.cpp: norms have 1 added."""
    config = _config(model_dir)
    writer = _writer(path, "gemma3", config)
    writer.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    write_gemma_tokenizer(writer)
    _finish(writer, model_dir, GEMMA_NAMES, lambda name, tensor: tensor + 1 if "norm" in name else tensor)


def write_gemma_tokenizer(writer: GGUFWriter) -> None:
    tokens = [token for tokens in GEMMA_TOKENS.values() for token in tokens]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1000.0] * len(tokens))
    writer.add_token_types([its_type for its_type, tokens in GEMMA_TOKENS.items() for _ in tokens])
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)


def _config(model_dir: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((model_dir / "config.json").read_text())
    return config


def _writer(path: Path, architecture: str, config: dict[str, Any]) -> GGUFWriter:
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    return writer


def _finish(writer: GGUFWriter, model_dir: Path, names: Names, packed: Callable[[str, np.ndarray], np.ndarray]) -> None:
    from safetensors.numpy import load_file

    for name, tensor in load_file(model_dir / "model.safetensors").items():
        writer.add_tensor(_gguf_name(name, names), packed(name, tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str, names: Names) -> str:
    path, _, leaf = name.rpartition(".")
    if path in names:
        return f"{names[path]}.{leaf}"
    _, _, layer, part = path.split(".", 3)
    return f"blk.{layer}.{names[part]}.{leaf}"


def _interleaved(name: str, tensor: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Row i of a head's first half goes to 2i, row i of its second half to 2i + 1."""
    if "q_proj" not in name and "k_proj" not in name:
        return tensor
    heads = tensor.reshape(-1, config["head_dim"], tensor.shape[-1])
    result = np.empty_like(heads)
    result[:, 0::2], result[:, 1::2] = np.split(heads, 2, axis=1)
    return result.reshape(tensor.shape)


def write_wheel(folder: Path, content: bytes, member: str = MEMBER, package: str = "tiny-model") -> Path:
    """A wheel of version 1.0 with one file in it."""
    module = package.replace("-", "_")
    dist_info = f"{module}-1.0.dist-info"
    files: dict[str, bytes | str] = {
        member: content,
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{dist_info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{dist_info}/RECORD": "",
    }
    wheel = folder / f"{module}-1.0-py3-none-any.whl"
    with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def tiny_entry(gguf: bytes) -> WheelModel:
    """What the catalogue would say of the package."""
    return entry_of("tiny", gguf, [WheelMember("tiny-model==1.0", MEMBER)])


def entry_of(name: str, gguf: bytes, parts: Sequence[WheelMember], notices: Sequence[WheelMember] = ()) -> WheelModel:
    return WheelModel(name, tuple(parts), len(gguf), sha256(gguf).hexdigest(), tuple(notices))
