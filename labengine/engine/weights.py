"""From *.safetensors to a model's parameters: which tensors of the files make up each parameter, read one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from labengine.config import ConfigError
from labengine.engine.families import FAMILIES
from labengine.engine.model import PagedModel

TOP_NAMES = {"embedding": "model.embed_tokens", "norm": "model.norm", "lm_head": "lm_head"}


def load_weights(model: PagedModel, model_dir: Path, dtype: torch.dtype, device: torch.device) -> None:
    """Fill a model built on the meta device. Raises ConfigError for files that are missing or broken, or don't fit."""
    names = FAMILIES[model.config.model_type].names
    with open_tensors(model_dir) as tensors:
        for name, parameter in list(model.named_parameters()):
            tensor = stacked(tensors, source_names(name, names), model_dir)
            if tensor.shape != parameter.shape:
                found, asked = tuple(tensor.shape), tuple(parameter.shape)
                raise ConfigError(f"{name} in {model_dir} has shape {found}, but config.json asks for {asked}")
            owner, _, leaf = name.rpartition(".")
            # A copy: tensors that stay mapped to the file would crash the process if someone rewrote it.
            filled = nn.Parameter(tensor.to(device=device, dtype=dtype, copy=True), requires_grad=False)
            setattr(model.get_submodule(owner), leaf, filled)


def source_names(parameter: str, layer_names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The files' names for one of our parameters, e.g. q, k and v of layer 0 for layers.0.attention.qkv.weight."""
    path, _, leaf = parameter.rpartition(".")
    if path in TOP_NAMES:
        return (f"{TOP_NAMES[path]}.{leaf}",)
    _, layer, part = path.split(".", 2)
    return tuple(f"model.layers.{layer}.{source}.{leaf}" for source in layer_names[part])


@contextmanager
def open_tensors(model_dir: Path) -> Iterator[Mapping[str, Any]]:
    """The open safetensors file that holds each tensor, by the tensor's name; nothing is read yet."""
    paths = sorted(model_dir.glob("*.safetensors"))
    if not paths:
        raise ConfigError(f"{model_dir} holds no *.safetensors")
    with ExitStack() as stack:
        files = [stack.enter_context(_open(path)) for path in paths]
        yield {name: file for file in files for name in file.keys()}  # noqa: SIM118 (no dict)


def stacked(tensors: Mapping[str, Any], names: tuple[str, ...], model_dir: Path) -> Tensor:
    """Read the named tensors and join them on their first dimension."""
    for name in names:
        if name not in tensors:
            raise ConfigError(f"{model_dir} lacks the tensor {name}; its config.json is not that of its *.safetensors")
    parts = [tensors[name].get_tensor(name) for name in names]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path} is not a readable safetensors file ({error}); fetch it again") from error
