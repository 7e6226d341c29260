"""Loading *.safetensors into a model's parameters, one tensor at a time; runners share loaded weights."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor, nn

from labengine.config import ConfigError
from labengine.engine.fingerprint import ModelFiles
from labengine.engine.mapped_memory import MappedMemory, ReusedMemory, mapped_zeros
from labengine.engine.model import PagedModel
from labengine.engine.model_files.tensor_files import DTYPES, StoredTensor, StoredTensors, open_tensors
from labengine.engine.modules import Linear, Matrix, Stack, can_compute
from labengine.engine.pool_size import free_memory

LM_HEAD = "lm_head.weight"
WIDER = {
    torch.float16: "use dtype='bfloat16' or 'float32'",
    torch.bfloat16: "use dtype='float32'",
    torch.float32: "no dtype of the engine can hold them",
}
"""Advice for numbers that do not fit, by dtype."""


def check_weights(model: PagedModel, model_dir: Path) -> None:
    """Raise ConfigError, naming file and tensor, unless the files hold exactly the tensors that config.json needs.

    model: on the meta device. Only headers are read.
    """
    with open_tensors(model_dir) as tensors:
        shapes = _expected_shapes(model, tensors)
        for name, shape in shapes.items():
            _check_tensor(_named(tensors, name, model_dir), shape)
        may_be_there = {LM_HEAD} if model.config.tie_word_embeddings else set()
        unused = re.compile(rf".*\.rotary_emb\.inv_freq|(?!{re.escape(model.family.root)}\.|lm_head\.).*")
        # Ropes (defined by config.json) and other programs' tensors are not needed.
        for name in sorted(tensors.keys() - shapes.keys() - may_be_there):
            if not unused.fullmatch(name):
                raise ConfigError(f"{tensors[name].path} has the tensor {name}, which config.json does not account for")


PIECE_BYTES = 2**22
"""Number of bytes of a matrix read and packed at a time, so that they stay in the processor's cache in between."""
PIECE_ROWS = 64
"""A piece's number of rows is a multiple of this; this is a multiple of any kernel's rows side by side."""


class Packing(Protocol):
    """Packs a matrix [n, k] in the order in which kernels read it.

    pieces: its rows, in order; each piece but the last has a multiple of PIECE_ROWS rows. A gated matrix is one piece.
    """

    def __call__(
        self,
        pieces: Iterable[Tensor],
        shape: Sequence[int],
        dtype: torch.dtype,
        memory: MappedMemory,
        *,
        is_gated: bool,
    ) -> Tensor:
        """Return the packed matrix."""
        ...


def load_weights(
    model: PagedModel, model_dir: Path, dtype: torch.dtype, device: torch.device, packing: Packing | None = None
) -> None:
    """Fill a model built on the meta device from files that check_weights accepted.

    packing: keep only the packed matrices; see Matrix. Raises ConfigError for bad values and too little memory.
    """
    _require_memory(model, model_dir, dtype, device)
    memory, scratch = MappedMemory(), ReusedMemory()
    with open_tensors(model_dir) as tensors:
        _check_tied(model, tensors)
        for name, _ in list(model.named_parameters()):
            names = stored_names(name, model, tensors)
            sources = [_named(tensors, source, model_dir) for source in names]
            owner, _, leaf = name.rpartition(".")
            module = model.get_submodule(owner)
            if packing is not None and isinstance(module, Matrix):
                pieces, shape = _pieces(sources, dtype, scratch, in_one=module.is_gated), _shape_of(sources)
                module.keep_packed(packing(pieces, shape, dtype, memory, is_gated=module.is_gated), dtype)
            else:
                kept = torch.float32 if leaf in getattr(module, "kept_float32", ()) else dtype
                weight = _filled(_empty(_shape_of(sources), kept, device), sources)
                weight = weight.view(model.get_parameter(name).shape)
                setattr(module, leaf, nn.Parameter(weight, requires_grad=False))


def _require_memory(model: PagedModel, model_dir: Path, dtype: torch.dtype, device: torch.device) -> None:
    """Raise ConfigError unless the weights fit. If memory runs out, Linux kills the whole process."""
    needed = sum(parameter.numel() for parameter in model.parameters()) * dtype.itemsize
    free = free_memory(device)
    if needed > free:
        half = "; dtype='bfloat16' needs half as much" if dtype is torch.float32 else ""
        raise ConfigError(
            f"{model_dir}: the weights need {needed / 2**30:,.1f} GiB as {str(dtype).removeprefix('torch.')}, but "
            f"{device} has {free / 2**30:,.1f} GiB free{half}"
        )


def _shape_of(sources: Sequence[StoredTensor]) -> tuple[int, ...]:
    """Return the shape of the stacked sources."""
    return (sum(source.shape[0] for source in sources), *sources[0].shape[1:])


def _empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return separate memory, so that it is freed once oneDNN has packed the tensor, independently of others."""
    return mapped_zeros(shape, dtype) if device.type == "cpu" else torch.empty(*shape, dtype=dtype, device=device)


def _pieces(
    sources: Sequence[StoredTensor], dtype: torch.dtype, scratch: ReusedMemory, *, in_one: bool
) -> Iterator[Tensor]:
    """Yield a matrix's rows in pieces of about PIECE_BYTES, all in the same memory; a stacked matrix in one piece."""
    num_rows, width = _shape_of(sources)
    rows = max(1, PIECE_BYTES // (width * dtype.itemsize * PIECE_ROWS)) * PIECE_ROWS
    if in_one or len(sources) > 1:
        yield _filled(scratch.take((num_rows, width), dtype), sources)
        return
    for first in range(0, num_rows, rows):
        memory = scratch.take((min(rows, num_rows - first), width), dtype)
        yield _filled(memory, sources, slice(first, first + rows))


def _filled(memory: Tensor, sources: Sequence[StoredTensor], rows: slice = slice(None)) -> Tensor:
    """Return the memory with the sources stacked, each copied straight from its file into its rows.

    They are copied because mapped tensors would crash the process if the file were rewritten. rows: of each source.
    Raises ConfigError for numbers that are not finite.
    """
    first = 0
    for source in sources:
        content = source.read()[rows]
        memory[first : first + len(content)].copy_(content)
        first += len(content)
    _check_finite(memory, sources)
    return memory


def stored_names(parameter: str, model: PagedModel, tensors: Container[str]) -> tuple[str, ...]:
    """Return the files' tensor names for one parameter, e.g. q, k and v of layer 0 for layers.0.attention.qkv.weight.

    tensors: all names in the files, which decide between two forms of experts.
    """
    names, root = model.family.names, model.family.root
    path, _, leaf = parameter.rpartition(".")
    if path == "lm_head":
        return (f"lm_head.{leaf}",)
    if path == "embedding":
        return (f"{root}.embed_tokens.{leaf}",)
    if path == "norm":
        return tuple(f"{root}.{source}.{leaf}" for source in names[path])
    _, layer, part = path.split(".", 2)
    prefix = f"{root}.layers.{layer}."
    whole = tuple(prefix + source for source in names.get(f"{part}.{leaf}", ()))
    if whole and (whole[0] in tensors or part not in names):
        return whole
    sources, num_experts = names[part], 1
    if "{}" in sources[0]:
        assert model.config.mixture is not None, "only mixtures have experts"
        num_experts = model.config.mixture.num_experts
    return tuple(f"{prefix}{source.format(e)}.{leaf}" for e in range(num_experts) for source in sources)


def _expected_shapes(model: PagedModel, tensors: Container[str]) -> dict[str, tuple[int, ...]]:
    """Return the expected shape of each tensor by its name in the files."""
    return {
        source: shape
        for name, parameter in model.named_parameters()
        for source, shape in _sources(model, name, parameter, tensors)
    }


def _sources(
    model: PagedModel, name: str, parameter: Tensor, tensors: Container[str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes of the tensors stacked in a parameter, top to bottom; the file may have one stack."""
    owner, names = model.get_submodule(name.rpartition(".")[0]), stored_names(name, model, tensors)
    if len(names) == 1:
        return iter([(names[0], tuple(parameter.shape))])
    assert isinstance(owner, Linear | Stack), "only matrices are stacked"
    sizes = owner.out_sizes * (owner.num_matrices if isinstance(owner, Stack) else 1)
    return ((source, (size, parameter.shape[-1])) for source, size in zip(names, sizes, strict=True))


def _named(tensors: StoredTensors, name: str, model_dir: Path) -> StoredTensor:
    if name not in tensors:
        raise ConfigError(f"{model_dir} has no tensor {name}: its config.json does not match its *.safetensors")
    return tensors[name]


def _check_tensor(tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ConfigError(
            f"{tensor.path}: the tensor {tensor.name} has shape {tensor.shape}, but config.json requires {shape}"
        )
    if tensor.dtype not in DTYPES:
        raise ConfigError(
            f"{tensor.path}: the tensor {tensor.name} has dtype {tensor.dtype}, which is not supported for weights; "
            f"save the model in bfloat16, float16 or float32"
        )


def _check_tied(model: PagedModel, tensors: StoredTensors) -> None:
    """Check that a tied model's files hold no output matrix other than the embedding."""
    if not model.config.tie_word_embeddings or LM_HEAD not in tensors:
        return
    head, embedding = tensors[LM_HEAD], tensors[f"{model.family.root}.embed_tokens.weight"]
    if head.shape != embedding.shape or not torch.equal(head.read(), embedding.read()):
        raise ConfigError(
            f"{head.path}: {LM_HEAD} is not {embedding.name}, but config.json says tie_word_embeddings=true; "
            "set it to false, or delete the tensor"
        )


def _check_finite(filled: Tensor, sources: Sequence[StoredTensor]) -> None:
    """Check for NaN and infinity by the least and the largest number: one pass, without another tensor."""
    if all(extreme.isfinite() for extreme in filled.aminmax()):
        return
    for source in sources:
        if not source.read().isfinite().all():
            raise ConfigError(
                f"{source.path}: the tensor {source.name} contains NaN or infinity; download the file again"
            )
    raise ConfigError(
        f"{sources[0].path}: the tensor {sources[0].name} has values too big for {filled.dtype}; {WIDER[filled.dtype]}"
    )


@dataclass(eq=False)
class Weights:
    """A model on a device, with the directory from which it was loaded."""

    model: PagedModel
    files: ModelFiles
    """The directory's files at the time of loading."""
    device: torch.device
    dtype: torch.dtype
    cuda_graphs: bool
    are_borrowed: bool = False
    """True if the modules belong to another model, which releases them."""
    _users: WeakSet[Any] = field(default_factory=WeakSet)
    _guard: RLock = field(default_factory=RLock)
    """Held briefly. Reentrant, as garbage collection may release a runner in a thread that holds the lock."""
    _copy: PagedModel | None = None
    _copying: Lock = field(default_factory=Lock)

    def first_layers(self, num_layers: int) -> Weights:
        """Return the first layers: the same modules in a separate model."""
        model = self.model.first_layers(num_layers)
        return Weights(model, self.files, self.device, self.dtype, self.cuda_graphs, are_borrowed=True)

    def join(self, user: object) -> None:
        """Register a user of the weights."""
        with self._guard:
            self._users.add(user)

    @property
    def is_used(self) -> bool:
        """True while a runner uses the weights."""
        with self._guard:
            return bool(self._users)

    def leave(self, user: object) -> bool:
        """Unregister a user; return True if none is left. A second call has no effect. Any thread may call it."""
        with self._guard:
            self._users.discard(user)
            if not self._users:
                self._copy = None
            return not self._users

    def torch_modules(self) -> PagedModel:
        """Return the model if its modules can compute, else a copy, as only native kernels read packed weights.

        The copy is read from the files and kept while the weights are used. Raises ConfigError if files have changed.
        """
        if all(can_compute(module) for module in self.model.modules()):
            return self.model
        with self._copying:
            copy = self._read_again() if self._copy is None else self._copy
        with self._guard:
            self._copy = copy if self._users else None
        return copy

    def _read_again(self) -> PagedModel:
        self.files.require_unchanged()
        with torch.device("meta"):
            copy = PagedModel(self.model.config)
        load_weights(copy, self.files.directory, self.dtype, self.device)
        self.files.require_unchanged()
        return copy
