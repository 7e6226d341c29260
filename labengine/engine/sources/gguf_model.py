"""Conversion of a GGUF file into a directory that both this engine and transformers can load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.gguf_architectures import GEMMA3, LLAMA, TOKEN_FIELDS, Config, Conversion, field
from labengine.engine.torch_import import load_torch

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor
    from torch import Tensor


def write_tokenizer(reader: GGUFReader, conversion: Conversion, out: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, if the file has one, chat_template.jinja into `out`."""
    fields = {name: entry.contents() for name, entry in reader.fields.items() if name.startswith("tokenizer.")}
    conversion.tokenizer_of(fields).save(str(out / "tokenizer.json"))
    config = json.dumps(_tokenizer_config(fields), indent=2)
    (out / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    if template := fields.get("tokenizer.chat_template"):
        (out / "chat_template.jinja").write_text(template, encoding="utf-8")


def _tokenizer_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {key: fields.get(f"tokenizer.ggml.{name}_token_id") for key, name in named.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{key: tokens[token_id] for key, token_id in ids.items() if token_id is not None},
    }


CONVERSIONS = {"llama": LLAMA, "gemma3": GEMMA3}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def convert(gguf: Path, out: Path, on_bytes: Callable[[int], object]) -> None:
    """Write model.safetensors in bfloat16, config.json, generation_config.json and the tokenizer's files into `out`.

    on_bytes gets the size of each tensor in the GGUF after its conversion.
    """
    load_torch()
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(gguf)
    conversion: Conversion = CONVERSIONS[field(reader, "general.architecture")]
    config = conversion.config_of(reader)
    tensors = {}
    for packed in reader.tensors:
        tensors[hf_name(packed.name, conversion.layer_names)] = _unpacked(packed, conversion, config)
        on_bytes(int(packed.n_bytes))
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    _write_json(out / "config.json", config)
    _write_json(out / "generation_config.json", {name: config[name] for name in TOKEN_FIELDS if name in config})
    write_tokenizer(reader, conversion, out)


def hf_name(name: str, layer_names: Mapping[str, str]) -> str:
    """Return the tensor's name in transformers."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, layer, part, leaf = name.split(".")
    return f"model.layers.{layer}.{layer_names[part]}.{leaf}"


def _unpacked(packed: ReaderTensor, conversion: Conversion, config: Config) -> Tensor:
    """Return one tensor, dequantized to bfloat16."""
    import numpy as np
    import torch
    from gguf.quants import dequantize

    array = conversion.restored(packed.name, dequantize(packed.data, packed.tensor_type), config)
    return torch.from_numpy(np.require(array, requirements="W")).to(torch.bfloat16)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
