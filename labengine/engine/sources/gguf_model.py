"""A GGUF file made into what this engine and transformers both load."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.conversion import TOKEN_FIELDS, Config, Conversion, field
from labengine.engine.sources.errors import SourceError
from labengine.engine.sources.gguf_gemma3 import GEMMA3
from labengine.engine.sources.gguf_llama import LLAMA
from labengine.engine.sources.gguf_tokenizer import write_tokenizer
from labengine.engine.torch_threads import load_torch

if TYPE_CHECKING:
    from gguf import ReaderTensor
    from torch import Tensor

CONVERSIONS = {"llama": LLAMA, "gemma3": GEMMA3}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def convert(gguf: Path, out: Path, on_bytes: Callable[[int], object]) -> None:
    """Write model.safetensors in bfloat16, config.json, generation_config.json and the tokenizer's files into `out`.

    on_bytes gets the size of each tensor in the GGUF once it is converted. Raises SourceError for another architecture.
    """
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(gguf)
    architecture = field(reader, "general.architecture")
    if architecture not in CONVERSIONS:
        known = " and ".join(CONVERSIONS)
        raise SourceError(f"{gguf.name} holds a model of architecture {architecture!r}; only {known} are converted")
    conversion: Conversion = CONVERSIONS[architecture]
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
    """Return the tensor's name in transformers. Raises SourceError for a tensor that the architecture does not have."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    try:
        _, layer, part, leaf = name.split(".")
        return f"model.layers.{layer}.{layer_names[part]}.{leaf}"
    except (ValueError, KeyError):
        raise SourceError(f"the GGUF holds a tensor {name}, which its architecture does not have") from None


def _unpacked(packed: ReaderTensor, conversion: Conversion, config: Config) -> Tensor:
    """One tensor, dequantized to bfloat16."""
    load_torch()
    import numpy as np
    import torch
    from gguf.quants import dequantize

    array = conversion.restored(packed.name, dequantize(packed.data, packed.tensor_type), config)
    return torch.from_numpy(np.require(array, requirements="W")).to(torch.bfloat16)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
