"""Launches of labengine's Triton kernels, compiled for a GPU that need not be here, by Triton's own launcher."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

from checkout import ROOT

sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

from standin_driver import GPUS, Launches, compiling, without_device

from labengine.config import GroupSpec
from labengine.engine import triton_sampler
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.triton import TritonAttention
from labengine.engine.attention.triton_tiles import Gpu
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.ops import triton_ops
from labengine.engine.step_tensors import GroupTensors, StepTensors

CPU = torch.device("cpu")
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
OLDEST_CAPABILITY_OF_BLACKWELL = 100


def capabilities() -> list[int]:
    """Those that this Triton compiles for: 3.2 has no assembler for Blackwell."""
    return [number for number in GPUS if number < OLDEST_CAPABILITY_OF_BLACKWELL or TRITON >= (3, 3)]


def half_precision(capability: int) -> torch.dtype:
    """The dtype of weights that the engine chooses there."""
    return torch.float16 if capability < 80 else torch.bfloat16


@contextmanager
def specializing(capability: int) -> Iterator[set[tuple[str, str]]]:
    """Have launches compile nothing and run nothing; note the kernels' names and what each would be compiled for."""
    found: set[tuple[str, str]] = set()

    def note(*, fn: Any, key: str, **_: object) -> bool:
        found.add((fn.name, key))
        return True  # not to be compiled

    hooks, name = (triton.knobs.runtime, "jit_cache_hook") if TRITON >= (3, 4) else (JITFunction, "cache_hook")
    with without_device(capability), patch.object(hooks, name, note):
        yield found


def kernels_of(module: object) -> set[str]:
    """Return the names of a module's kernels."""
    return {name for name in vars(module) if name.endswith("_kernel")}


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


def fuse(dtype: torch.dtype, num_tokens: int = 3) -> None:
    """The ops around attention, with and without their optional arguments, in Qwen3's sizes."""
    hidden, weight = torch.zeros(num_tokens, 1024, dtype=dtype), torch.zeros(1024, dtype=dtype)
    qkv, angles = torch.zeros(num_tokens, 32, 128, dtype=dtype), torch.zeros(num_tokens, 1, 64)
    for offset in (False, True):
        triton_ops.add_rms_norm(hidden, hidden, weight, 1e-6, offset)
        triton_ops.add_rms_norm(hidden, None, weight, 1e-6, offset)
        triton_ops.rotate_heads(qkv[:, :16], angles, angles, weight[:128], 1e-6, offset)
    triton_ops.rotate_heads(qkv[:, 16:24], angles, angles, None, 0.0, False)
    slots = torch.zeros(num_tokens, dtype=torch.int32)
    cache = LayerKV(*torch.zeros(2, 4, 16, 8, 128, dtype=dtype))
    for weights in (None, (weight[:128], weight[:128])):
        triton_ops.rotate_and_write(qkv, 8, (angles, angles), weights, 1e-6, True, slots, cache)
    triton_ops.gated(torch.zeros(num_tokens, 6144, dtype=dtype), "silu")
    triton_ops.gated(torch.zeros(num_tokens, 6144, dtype=dtype), "gelu_tanh")


def sample(num_rows: int = 2) -> None:
    """Greedy rows, and drawn ones with a cut."""
    logits, draws = torch.empty(num_rows, VOCABULARY), torch.zeros(4, num_rows, dtype=torch.float64)
    triton_sampler.sample(logits, None)
    triton_sampler.sample(logits, draws, cuts=True)


def attention_launches(capability: int, model: str, dtype: torch.dtype, block_size: int = 16) -> Launches:
    """Compile attention's kernels for a model."""
    with compiling(capability) as launches:
        attend(GPUS[capability], dtype, MODELS[model], spec_of(model, block_size))
    return launches


def ops_launches(capability: int, dtype: torch.dtype) -> Launches:
    """Compile the fused ops."""
    with compiling(capability) as launches:
        fuse(dtype)
    return launches


def sampler_launches(capability: int) -> Launches:
    """Compile the sampler's kernels."""
    with compiling(capability) as launches:
        sample()
    return launches
