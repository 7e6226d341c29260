"""Every kernel, as the backend would launch it, compiles for GPUs from Turing on: no GPU is needed for that.

Launches are caught with their arguments, compiled for a capability, and held against what such a GPU has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from engine.plan_builder import Dealer, plan_of
from engine.ptxas_report import report_of
from labengine.config import GroupSpec
from labengine.engine import sampler_kernels, triton_sampler
from labengine.engine.attention import AttentionSetting, triton_kernels
from labengine.engine.attention.triton import TritonAttention, is_interpreted
from labengine.engine.attention.triton_tiles import Gpu
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.ops import triton_ops
from labengine.engine.step_tensors import step_tensors
from sampling import sampled

pytestmark = pytest.mark.skipif(is_interpreted(), reason="TRITON_INTERPRET=1: kernels are not compiled")

CPU = torch.device("cpu")
GPUS = {75: Gpu((7, 5), 40), 80: Gpu((8, 0), 108), 89: Gpu((8, 9), 128), 90: Gpu((9, 0), 132)}
ALL_GPUS = {**GPUS, 86: Gpu((8, 6), 84), 100: Gpu((10, 0), 148), 120: Gpu((12, 0), 170)}
SHARED_KIB = {75: 64, 80: 163, 89: 99, 90: 227}
"""Shared memory that one program may have."""
A_FEW_BYTES = 64
"""Spilled by a thread's stores and loads: ptxas trades as much for one more program per SM. A tile spills hundreds."""
TYPES = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


class Caught:
    """A kernel that compiles its launches instead of running them."""

    def __init__(self, kernel: Any, capability: int) -> None:
        self._kernel = kernel
        self._capability = capability
        self.compiled: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        assert all(size > 0 for size in grid)
        return self._launch

    def _launch(self, *args: Any, **kwargs: Any) -> None:
        names = self._kernel.arg_names
        values = dict(zip(names, args, strict=False)) | {name: kwargs.pop(name) for name in names if name in kwargs}
        assert list(values) == names, "a launch gives every argument, in order"
        signature = {name: self._type(name, value) for name, value in values.items()}
        constants = {name: value for name, value in values.items() if signature[name] == "constexpr"}
        aligned = {
            (i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if self._is_aligned(name, values[name])
        }
        source = ASTSource(self._kernel, signature, constants, aligned)
        self.compiled.append(compile(source, target=GPUTarget("cuda", self._capability, 32), options=kwargs))

    def _type(self, name: str, value: Any) -> str:
        if value is None or self._kernel.params[self._kernel.arg_names.index(name)].is_constexpr:
            return "constexpr"
        return TYPES[value.dtype] if isinstance(value, Tensor) else "i32" if isinstance(value, int) else "fp32"

    def _is_aligned(self, name: str, value: Any) -> bool:
        """What the launcher finds out, too: pointers and sizes that are multiples of 16."""
        if isinstance(value, Tensor):
            return value.data_ptr() % 16 == 0
        parameter = self._kernel.params[self._kernel.arg_names.index(name)]
        return type(value) is int and value % 16 == 0 and not (parameter.is_constexpr or parameter.do_not_specialize)


@pytest.fixture
def catch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, int], dict[str, Caught]]]:
    """Catch all launches of a module's kernels; by name."""

    def caught(module: Any, capability: int) -> dict[str, Caught]:
        found = {}
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            found[name] = Caught(getattr(module, name), capability)
            monkeypatch.setattr(module, name, found[name])
        return found

    yield caught


def attend(gpu: Gpu, dtype: torch.dtype, heads: tuple[int, int, int], spec: GroupSpec, lengths: list[int]) -> None:
    """A step of chunks and decodes, and one of decodes alone, as a layer has them."""
    num_heads, num_kv_heads, head_dim = heads
    backend = TritonAttention(AttentionSetting(CPU, dtype, *heads, (spec.block_size,)), gpu)
    dealer = Dealer(sum(-(-length // spec.block_size) for length in lengths), [spec])
    requests = [dealer.request([0] * length) for length in lengths]
    cache = LayerKV(*torch.zeros(2, dealer.num_blocks, spec.block_size, num_kv_heads, head_dim, dtype=dtype))
    for plan in (
        plan_of(*(request.take(len(request.token_ids) - 2) for request in requests[1:])),
        plan_of(requests[0].take(100), *(request.take(1) for request in requests[1:])),
        plan_of(*(request.take(1) for request in requests)),
    ):
        step = step_tensors(plan, [spec], CPU)
        attention = backend.prepare(step, step.groups[0])
        qkv = torch.zeros(plan.num_tokens, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
        queries, keys, values = qkv.split((num_heads, num_kv_heads, num_kv_heads), 1)
        attention.write(keys, values, cache)
        attention.attend(queries, cache, 0.1)


QWEN, SMOLLM, GEMMA = (16, 8, 128), (9, 3, 64), (4, 1, 256)
FULL, WINDOW = GroupSpec(16), GroupSpec(16, "sliding_window", 512)


MODELS = {"qwen3": QWEN, "smollm2": SMOLLM, "gemma3": GEMMA}
EACH_ONCE = {(75, "smollm2"), (80, "qwen3"), (89, "smollm2"), (90, "gemma3")}
"""Each GPU once, and each model."""


@pytest.mark.parametrize(("capability", "model"), sampled(product(GPUS, MODELS), EACH_ONCE))
def test_attention(capability: int, model: str, catch: Callable[..., dict[str, Caught]]) -> None:
    heads = MODELS[model]
    dtype = torch.float16 if capability == 75 else torch.bfloat16
    caught = catch(triton_kernels, capability)
    attend(GPUS[capability], dtype, heads, WINDOW if heads == GEMMA else FULL, [1000, 2000])
    assert all(kernel.compiled for kernel in caught.values())
    for kernel in caught["attend_kernel"].compiled:
        assert kernel.metadata.shared <= SHARED_KIB[capability] * 1024
        # Triton has given up Turing's tensor cores.
        assert capability == 75 or "mma" in kernel.asm["ptx"], "products belong on tensor cores"


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["half", "float32"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("capability", sorted(ALL_GPUS))
def test_registers_and_shared_memory(
    capability: int, model: str, dtype: str, catch: Callable[..., dict[str, Caught]], tmp_path: Path
) -> None:
    """No tile spills, and three programs of a decode share an SM in half precision: few of them hide no latency."""
    half = torch.float16 if capability == 75 else torch.bfloat16
    caught = catch(triton_kernels, capability)
    heads = MODELS[model]
    gpu = ALL_GPUS[capability]
    attend(gpu, torch.float32 if dtype == "float32" else half, heads, WINDOW if heads == GEMMA else FULL, [1000, 2000])
    for compiled in (compiled for kernel in caught.values() for compiled in kernel.compiled):
        report = report_of(compiled, capability, tmp_path)
        assert report.spilled <= A_FEW_BYTES and report.programs_per_sm >= 1, report
    if dtype == "half" and capability > 75:
        decodes = report_of(caught["attend_kernel"].compiled[-1], capability, tmp_path)
        assert decodes.programs_per_sm >= 3, decodes


@pytest.mark.parametrize(("block_size",), sampled(product([5, 16, 256]), {(16,)}))
def test_keys_are_copied_16_bytes_at_a_time(block_size: int, catch: Callable[..., dict[str, Caught]]) -> None:
    """On Hopper, several steps ahead: loads straight into shared memory, none of them through registers."""
    kernels = catch(triton_kernels, 90)
    for gpu in (GPUS[90], Gpu((9, 0), 1)):  # with and without spans
        attend(gpu, torch.bfloat16, QWEN, GroupSpec(block_size), [1000, 2000])
    for kernel in kernels["attend_kernel"].compiled:
        ptx = kernel.asm["ptx"]
        copies = re.findall(r"cp\.async\.\w+\.shared\.global[^;]*?, (0x\w+|\d+)", ptx)
        assert copies and all(int(size, 0) == 16 for size in copies)
    for kernel in kernels["write_kernel"].compiled:
        assert re.search(r"ld\.global\S*\.v4\.b32", kernel.asm["ptx"]), "rows are copied in large pieces"


@pytest.mark.parametrize(("capability",), sampled(product([75, 90]), {(75,)}))
def test_attention_in_float32(capability: int, catch: Callable[..., dict[str, Caught]]) -> None:
    caught = catch(triton_kernels, capability)
    attend(GPUS[capability], torch.float32, QWEN, FULL, [300, 600])
    for kernel in caught["attend_kernel"].compiled:
        assert kernel.metadata.shared <= SHARED_KIB[capability] * 1024
        assert "tf32" not in kernel.asm["ptx"], "float32 is for exact comparisons"


@pytest.mark.parametrize(("capability",), sampled(product(GPUS), {(75,), (90,)}))
def test_fused_ops(capability: int, catch: Callable[..., dict[str, Caught]], tmp_path: Path) -> None:
    dtype = torch.float16 if capability == 75 else torch.bfloat16
    caught = catch(triton_ops, capability)
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
    for kernel in (kernel for found in caught.values() for kernel in found.compiled):
        assert re.search(r"ld\.global\S*\.v[24]", kernel.asm["ptx"]), "whole vectors are loaded"
        assert report_of(kernel, capability, tmp_path).spilled == 0
    assert all(kernel.compiled for kernel in caught.values())


@pytest.mark.parametrize(("capability",), sampled(product(sorted(ALL_GPUS)), {(75,), (90,)}))
@pytest.mark.parametrize("vocab_size", [151_936])
def test_sampler(vocab_size: int, capability: int, catch: Callable[..., dict[str, Caught]], tmp_path: Path) -> None:
    """Logits are loaded 16 bytes at a time, weights added in float64, in registers."""
    caught = catch(sampler_kernels, capability)
    logits, draws = torch.zeros(2, vocab_size), torch.zeros(2, 2, dtype=torch.float64)
    for numbers in (None, draws):
        triton_sampler.sample(logits, numbers)
    compiled = {name: kernel.compiled for name, kernel in caught.items()}
    assert {name: len(found) for name, found in compiled.items()} == {
        "survey_kernel": 2, "weigh_kernel": 1, "choose_kernel": 2,
    }  # fmt: skip
    for kernel in (*compiled["survey_kernel"], *compiled["weigh_kernel"]):
        assert re.search(r"ld\.global\S*\.v4", kernel.asm["ptx"])
    for kernel in (*compiled["weigh_kernel"], compiled["choose_kernel"][1]):
        assert "div.rn.f64" in kernel.asm["ptx"] and "add.f64" in kernel.asm["ptx"]
    for kernel in (kernel for found in compiled.values() for kernel in found):
        report = report_of(kernel, capability, tmp_path)
        assert report.spilled <= A_FEW_BYTES and report.threads * report.programs_per_sm >= 512, report
