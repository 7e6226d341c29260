"""Launches of labengine's Triton kernels, compiled for a GPU that need not be here.

A launch is caught with its arguments, specialized as Triton's launcher would do it, and compiled. Triton 3.2, where
sources are described otherwise, is served too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from labengine.config import GroupSpec
from labengine.engine import sampler_cut_kernels, sampler_kernels, triton_sampler
from labengine.engine.attention import AttentionSetting, triton_kernels
from labengine.engine.attention.triton import TritonAttention
from labengine.engine.attention.triton_tiles import Gpu
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.ops import triton_ops
from labengine.engine.step_tensors import GroupTensors, StepTensors

CPU = torch.device("cpu")
GPUS = {
    75: Gpu((7, 5), 40),
    80: Gpu((8, 0), 108),
    86: Gpu((8, 6), 84),
    89: Gpu((8, 9), 128),
    90: Gpu((9, 0), 132),
    100: Gpu((10, 0), 148),
    120: Gpu((12, 0), 170),
}
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
OLDEST_CAPABILITY_OF_BLACKWELL = 100
TYPES = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def capabilities() -> list[int]:
    """Those that this Triton compiles for: 3.2 has no assembler for Blackwell."""
    return [number for number in GPUS if number < OLDEST_CAPABILITY_OF_BLACKWELL or TRITON >= (3, 3)]


def half_precision(capability: int) -> torch.dtype:
    """The dtype of weights that the engine chooses there."""
    return torch.float16 if capability < 80 else torch.bfloat16


@dataclass
class Caught:
    """A kernel that compiles its launches instead of running them."""

    kernel: Any
    capability: int
    compiled: list[Any] = field(default_factory=list)
    options: list[Mapping[str, Any]] = field(default_factory=list)
    """The constants of each launch."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        assert all(size > 0 for size in grid)
        return self._launch

    def _launch(self, *args: Any, **kwargs: Any) -> None:
        names = self.kernel.arg_names
        values = dict(zip(names, args, strict=False)) | {name: kwargs.pop(name) for name in names if name in kwargs}
        assert list(values) == names, "a launch gives every argument, in order"
        signature = {name: self._type(name, value) for name, value in values.items()}
        constants = {name: value for name, value in values.items() if signature[name] == "constexpr"}
        aligned = [i for i, name in enumerate(names) if self._is_aligned(name, values[name])]
        source = _source(self.kernel, signature, constants, aligned)
        self.compiled.append(compile(source, target=GPUTarget("cuda", self.capability, 32), options=kwargs))
        self.options.append(constants)

    def _type(self, name: str, value: Any) -> str:
        if value is None or self.kernel.params[self.kernel.arg_names.index(name)].is_constexpr:
            return "constexpr"
        return TYPES[value.dtype] if isinstance(value, Tensor) else "i32" if isinstance(value, int) else "fp32"

    def _is_aligned(self, name: str, value: Any) -> bool:
        """What the launcher finds out, too: pointers and sizes that are multiples of 16."""
        if isinstance(value, Tensor):
            return value.data_ptr() % 16 == 0
        parameter = self.kernel.params[self.kernel.arg_names.index(name)]
        return type(value) is int and value % 16 == 0 and not (parameter.is_constexpr or parameter.do_not_specialize)


def _source(kernel: Any, signature: dict[str, str], constants: dict[str, Any], aligned: list[int]) -> ASTSource:
    if TRITON >= (3, 3):
        return ASTSource(kernel, signature, constants, {(i,): [["tt.divisibility", 16]] for i in aligned})
    from triton.backends.compiler import AttrsDescriptor

    properties = {"arg_properties": {"tt.divisibility": aligned, "tt.equal_to": []}, "cls": "AttrsDescriptor"}
    variables = {name: kind for name, kind in signature.items() if kind != "constexpr"}
    return ASTSource(kernel, variables, constants, AttrsDescriptor.from_dict(properties))


@contextmanager
def catching(module: Any, capability: int) -> Iterator[dict[str, Caught]]:
    """Catch all launches of a module's kernels; by name."""
    names = [name for name in vars(module) if name.endswith("_kernel")]
    caught = {name: Caught(getattr(module, name), capability) for name in names}
    with ExitStack() as stack:
        for name, kernel in caught.items():
            stack.enter_context(patch.object(module, name, kernel))
        yield caught


# -- what is launched --------------------------------------------------------------------------------------------------

MODELS = {"qwen3": (16, 8, 128), "smollm2": (9, 3, 64), "gemma3": (4, 1, 256)}
"""Query heads, KV heads and their dimension."""
VOCABULARY = 151_936
BLOCK_SIZES = (16, 256)
"""Blocks that are smaller than a tile's keys, whose slots are looked up key by key, and larger ones."""
FULL = GroupSpec(16)


def spec_of(model: str, block_size: int) -> GroupSpec:
    """The model's group; Gemma's has a window."""
    return GroupSpec(block_size, "sliding_window", 512) if model == "gemma3" else GroupSpec(block_size)


def attend(
    gpu: Gpu,
    dtype: torch.dtype,
    heads: tuple[int, int, int],
    spec: GroupSpec = FULL,
    contexts: tuple[int, ...] = (1000, 2000),
) -> None:
    """Steps of chunks alone, of a chunk with decodes, and of decodes alone, as a layer has them."""
    num_heads, num_kv_heads, head_dim = heads
    backend = TritonAttention(AttentionSetting(CPU, dtype, *heads, (spec.block_size,)), gpu)
    cache = LayerKV(*torch.zeros(2, 2, spec.block_size, num_kv_heads, head_dim, dtype=dtype))
    ones = (1,) * (len(contexts) - 1)
    for query_lens in (contexts, (100, *ones), (1, *ones)):
        step = _step(spec, query_lens, contexts)
        attention = backend.prepare(step, step.groups[0])
        qkv = torch.zeros(sum(query_lens), num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
        queries, keys, values = qkv.split((num_heads, num_kv_heads, num_kv_heads), 1)
        attention.write(keys, values, cache)
        attention.attend(queries, cache, 0.1)


def _step(spec: GroupSpec, query_lens: tuple[int, ...], contexts: tuple[int, ...]) -> StepTensors:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.int32)

    num_tokens, num_requests = sum(query_lens), len(query_lens)
    tables = zeros(num_requests, -(-max(contexts) // spec.block_size))
    return StepTensors(
        token_ids=zeros(num_tokens),
        positions=zeros(num_tokens),
        query_lens=query_lens,
        context_lens=contexts,
        query_starts=zeros(num_requests + 1),
        contexts=zeros(num_requests),
        sample_rows=zeros(num_requests),
        groups=(GroupTensors(spec.block_size, spec.window, zeros(num_tokens), tables),),
    )


def fuse(dtype: torch.dtype) -> None:
    """The ops around attention, with and without what is optional, in Qwen3's sizes."""
    hidden, weight = torch.zeros(3, 1024, dtype=dtype), torch.zeros(1024, dtype=dtype)
    qkv, angles = torch.zeros(3, 32, 128, dtype=dtype), torch.zeros(3, 1, 64)
    for offset in (False, True):
        triton_ops.add_rms_norm(hidden, hidden, weight, 1e-6, offset)
        triton_ops.add_rms_norm(hidden, None, weight, 1e-6, offset)
        triton_ops.rotate_heads(qkv[:, :16], angles, angles, weight[:128], 1e-6, offset)
    triton_ops.rotate_heads(qkv[:, 16:24], angles, angles, None, 0.0, False)
    slots = torch.zeros(3, dtype=torch.int32)
    cache = LayerKV(*torch.zeros(2, 4, 16, 8, 128, dtype=dtype))
    for weights in (None, (weight[:128], weight[:128])):
        triton_ops.rotate_and_write(qkv, 8, (angles, angles), weights, 1e-6, True, slots, cache)
    triton_ops.gated(torch.zeros(3, 6144, dtype=dtype), "silu")
    triton_ops.gated(torch.zeros(3, 6144, dtype=dtype), "gelu_tanh")


def sample() -> None:
    """Greedy rows, and drawn ones with a cut."""
    logits, draws = torch.zeros(2, VOCABULARY), torch.zeros(4, 2, dtype=torch.float64)
    triton_sampler.sample(logits, None)
    triton_sampler.sample(logits, draws, cuts=True)


def attention_launches(capability: int, model: str, dtype: torch.dtype, block_size: int = 16) -> dict[str, Caught]:
    """Compile attention's kernels for a model; by name."""
    with catching(triton_kernels, capability) as caught:
        attend(GPUS[capability], dtype, MODELS[model], spec_of(model, block_size))
    return caught


def ops_launches(capability: int, dtype: torch.dtype) -> dict[str, Caught]:
    """Compile the fused ops; by name."""
    with catching(triton_ops, capability) as caught:
        fuse(dtype)
    return caught


def sampler_launches(capability: int) -> dict[str, Caught]:
    """Compile the sampler's kernels; by name."""
    with catching(sampler_kernels, capability) as caught, catching(sampler_cut_kernels, capability) as cutting:
        sample()
    return caught | cutting
