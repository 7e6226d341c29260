"""Loading *.safetensors into a model's parameters, one tensor at a time; runners share loaded weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from labengine.config import ConfigError
from labengine.engine.fingerprint import ModelFiles
from labengine.engine.mapped_memory import LARGE, MappedMemory
from labengine.engine.model import FAMILIES, PagedModel
from labengine.engine.model_files.tensor_files import DTYPES, StoredTensor, StoredTensors, open_tensors
from labengine.engine.modules import Linear

TOP_NAMES = {"embedding": "model.embed_tokens", "norm": "model.norm", "lm_head": "lm_head"}
LM_HEAD = "lm_head.weight"
UNUSED = re.compile(r".*\.rotary_emb\.inv_freq|(?!model\.|lm_head\.).*")
"""Tensors that may be there unread: ropes, which config.json defines, and other programs' tensors."""


def check_weights(model: PagedModel, model_dir: Path) -> None:
    """Raise ConfigError, naming file and tensor, unless the files hold exactly the tensors that config.json needs.

    model: on the meta device. Only headers are read.
    """
    with open_tensors(model_dir) as tensors:
        shapes = _expected_shapes(model)
        for name, shape in shapes.items():
            _check_tensor(_named(tensors, name, model_dir), shape)
        may_be_there = {LM_HEAD} if model.config.tie_word_embeddings else set()
        for name in sorted(tensors.keys() - shapes.keys() - may_be_there):
            if not UNUSED.fullmatch(name):
                raise ConfigError(f"{tensors[name].path} holds the tensor {name}, for which config.json has no place")


def load_weights(model: PagedModel, model_dir: Path, dtype: torch.dtype, device: torch.device) -> None:
    """Fill a model built on the meta device from files that check_weights accepted.

    Raises ConfigError for bad values.
    """
    names = FAMILIES[model.config.model_type].names
    memory = MappedMemory() if device.type == "cpu" else None
    with open_tensors(model_dir) as tensors:
        _check_tied(model, tensors)
        for name, _ in list(model.named_parameters()):
            sources = [_named(tensors, source, model_dir) for source in source_names(name, names)]
            owner, _, leaf = name.rpartition(".")
            filled = nn.Parameter(_stacked(sources, dtype, device, memory), requires_grad=False)
            _check_finite(filled, sources)
            setattr(model.get_submodule(owner), leaf, filled)


def _stacked(
    sources: Sequence[StoredTensor], dtype: torch.dtype, device: torch.device, memory: MappedMemory | None
) -> Tensor:
    """Return the sources one below the other, each copied straight from its file into its rows, in `memory` if given.

    A copy: tensors that stay mapped to the file would crash the process if someone rewrote it.
    """
    ends = list(accumulate(source.shape[0] for source in sources))
    shape = (ends[-1], *sources[0].shape[1:])
    if memory is None or prod(shape) * dtype.itemsize < LARGE:  # a norm that stays would keep the whole mapping
        stacked = torch.empty(shape, dtype=dtype, device=device)
    else:
        stacked = memory.take(prod(shape), dtype).view(shape)
    for end, source in zip(ends, sources, strict=True):
        stacked[end - source.shape[0] : end].copy_(source.read())
    return stacked


def source_names(parameter: str, layer_names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the files' names for one parameter, e.g. q, k and v of layer 0 for layers.0.attention.qkv.weight."""
    path, _, leaf = parameter.rpartition(".")
    if path in TOP_NAMES:
        return (f"{TOP_NAMES[path]}.{leaf}",)
    _, layer, part = path.split(".", 2)
    return tuple(f"model.layers.{layer}.{source}.{leaf}" for source in layer_names[part])


def _expected_shapes(model: PagedModel) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the files, by its name there."""
    names = FAMILIES[model.config.model_type].names
    return {
        source: shape
        for name, parameter in model.named_parameters()
        for source, shape in zip(source_names(name, names), _shapes(model, name, parameter), strict=True)
    }


def _shapes(model: PagedModel, name: str, parameter: Tensor) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the tensors stacked in a parameter, top to bottom."""
    owner = model.get_submodule(name.rpartition(".")[0])
    sizes = owner.out_sizes if isinstance(owner, Linear) else parameter.shape[:1]
    return ((size, *parameter.shape[1:]) for size in sizes)


def _named(tensors: StoredTensors, name: str, model_dir: Path) -> StoredTensor:
    if name not in tensors:
        raise ConfigError(f"{model_dir} lacks the tensor {name}; its config.json is not that of its *.safetensors")
    return tensors[name]


def _check_tensor(tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ConfigError(
            f"{tensor.path}: the tensor {tensor.name} has shape {tensor.shape}, but config.json asks for {shape}"
        )
    if tensor.dtype not in DTYPES:
        raise ConfigError(
            f"{tensor.path}: the tensor {tensor.name} has dtype {tensor.dtype}, which is not supported for weights; "
            f"save the model in bfloat16, float16 or float32"
        )


def _check_tied(model: PagedModel, tensors: StoredTensors) -> None:
    """Check that a tied model's files hold no other output matrix than the embedding."""
    if not model.config.tie_word_embeddings or LM_HEAD not in tensors:
        return
    head, embedding = tensors[LM_HEAD], tensors["model.embed_tokens.weight"]
    if head.shape != embedding.shape or not torch.equal(head.read(), embedding.read()):
        raise ConfigError(
            f"{head.path}: {LM_HEAD} is not {embedding.name}, but config.json says tie_word_embeddings=true; "
            "set it to false, or delete the tensor"
        )


def _check_finite(filled: Tensor, sources: Sequence[StoredTensor]) -> None:
    """Check for NaN and infinity. (The least and the largest number show both: one pass, without another tensor.)"""
    if all(extreme.isfinite() for extreme in filled.aminmax()):
        return
    for source in sources:
        if not source.read().isfinite().all():
            raise ConfigError(f"{source.path}: the tensor {source.name} holds NaN or infinity; fetch the file again")
    raise ConfigError(
        f"{sources[0].path}: the tensor {sources[0].name} holds numbers beyond {filled.dtype}; use bfloat16 or float32"
    )


@dataclass(frozen=True, eq=False)
class Weights:
    """A model on a device, with the directory that it was loaded from."""

    model: PagedModel
    files: ModelFiles
    """The directory's files at the time of loading."""
    device: torch.device
    dtype: torch.dtype
    cuda_graphs: bool
    _users: WeakSet[Any] = field(default_factory=WeakSet)
    _guard: Lock = field(default_factory=Lock)

    def join(self, user: object) -> None:
        """Register a user of the weights."""
        with self._guard:
            self._users.add(user)

    @property
    def user(self) -> Any:
        """One of the users (a ModelRunner, whose module imports this one); None when all have left."""
        with self._guard:
            return next(iter(self._users), None)

    def leave(self, user: object) -> bool:
        """Unregister a user; return True if no other is left. Twice is harmless. Any thread may call it."""
        with self._guard:
            self._users.discard(user)
            return not self._users
