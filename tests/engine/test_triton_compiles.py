"""Every kernel, as the backend would launch it, compiles for GPUs from Turing on: no GPU is needed for that.

Launches are compiled for a capability, and held against what such a GPU has. So are the launches of Triton's cases, in
a process of their own: the interpreter runs kernels that no compiler takes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

from checkout import ROOT
from labengine.config import GroupSpec
from sampling import sampled

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

from engine.compiled_launches import (
    BLOCK_SIZES,
    GPUS,
    MODELS,
    TRITON,
    attend,
    attention_launches,
    capabilities,
    compiling,
    fuse,
    half_precision,
    kernels_of,
    ops_launches,
    sample,
    sampler_launches,
    specializing,
)
from engine.ptxas_report import report_of
from labengine.engine.attention import triton_kernels
from labengine.engine.attention.triton import is_interpreted
from labengine.engine.attention.triton_tiles import Gpu
from labengine.engine.ops import triton_kernels as ops_kernels

pytestmark = pytest.mark.skipif(is_interpreted(), reason="TRITON_INTERPRET=1: kernels are not compiled")

SHARED_KIB = {75: 64, 80: 163, 89: 99, 90: 227}
"""Shared memory that one program may have."""
A_FEW_BYTES = 64
"""Spilled by a thread's stores and loads: ptxas trades as much for one more program per SM. A tile spills hundreds."""
MOST_SPILLED, LEAST_DECODES = (A_FEW_BYTES, 3) if TRITON >= (3, 7) else (160, 2)
"""Per thread, and per SM. Triton 3.2 gives heads of 256 more registers: 132 bytes on sm_80, 2 programs on sm_90."""
MOST_IN_FLOAT64 = {"survey_kernel": 0, "weigh_kernel": 8, "choose_kernel": 220, "collect_kernel": 4, "cut_kernel": 340}
"""Instructions of a thread, which has 16 logits. A T4 and a 4090 take 32 and 64 times as long for each as in float32.

choose_kernel adds up one chunk of a row, and cut_kernel weighs a row's candidates.
"""
EACH_ONCE = {(75, "smollm2"), (80, "qwen3"), (89, "smollm2"), (90, "gemma3")}
"""Each GPU once, and each model."""


@pytest.mark.parametrize(("capability", "model"), sampled(product(SHARED_KIB, MODELS), EACH_ONCE))
def test_attention(capability: int, model: str) -> None:
    launches = attention_launches(capability, model, half_precision(capability))
    assert launches.keys() == kernels_of(triton_kernels)
    for kernel in (launch.compiled for launch in launches["attend_kernel"]):
        assert kernel.metadata.shared <= SHARED_KIB[capability] * 1024
        # Triton has given up Turing's tensor cores.
        assert capability == 75 or "mma" in kernel.asm["ptx"], "products belong on tensor cores"


@pytest.mark.sweep
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("precision", ["half", "float32"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("capability", capabilities())
def test_registers_and_shared_memory(
    capability: int, model: str, precision: str, block_size: int, tmp_path: Path
) -> None:
    """No tile spills, and three programs of a decode share an SM in half precision: few of them hide no latency."""
    dtype = torch.float32 if precision == "float32" else half_precision(capability)
    launches = attention_launches(capability, model, dtype, block_size)
    assert launches.keys() == kernels_of(triton_kernels)
    for launch in (launch for found in launches.values() for launch in found):
        report = report_of(launch.compiled, capability, tmp_path)
        is_decode = launch.arguments.get("QUERIES") == 1  # a tile of several queries is a prompt's
        least = LEAST_DECODES if is_decode and precision == "half" and capability > 75 else 1
        assert report.spilled <= MOST_SPILLED and report.programs_per_sm >= least, report


@pytest.mark.parametrize(("block_size",), sampled(product([5, 16, 256]), {(16,)}))
def test_keys_are_copied_16_bytes_at_a_time(block_size: int) -> None:
    """On Hopper, several steps ahead: loads straight into shared memory, none of them through registers."""
    with compiling(90) as launches:
        for gpu in (GPUS[90], Gpu((9, 0), 1)):  # with and without spans
            attend(gpu, torch.bfloat16, MODELS["qwen3"], GroupSpec(block_size))
    for ptx in (launch.compiled.asm["ptx"] for launch in launches["attend_kernel"]):
        copies = re.findall(r"cp\.async\.\w+\.shared\.global[^;]*?, (0x\w+|\d+)", ptx)
        assert copies and all(int(size, 0) == 16 for size in copies)
    for ptx in (launch.compiled.asm["ptx"] for launch in launches["write_kernel"]):
        assert re.search(r"ld\.global\S*\.v4\.b32", ptx), "rows are copied in large pieces"


@pytest.mark.parametrize(("capability",), sampled(product([75, 90]), {(75,)}))
def test_attention_in_float32(capability: int) -> None:
    launches = attention_launches(capability, "qwen3", torch.float32)
    for kernel in (launch.compiled for launch in launches["attend_kernel"]):
        assert kernel.metadata.shared <= SHARED_KIB[capability] * 1024
        assert "tf32" not in kernel.asm["ptx"], "float32 is for exact comparisons"


@pytest.mark.parametrize(("capability",), sampled(product(capabilities()), {(75,), (90,)}))
def test_fused_ops(capability: int, tmp_path: Path) -> None:
    launches = ops_launches(capability, half_precision(capability))
    for kernel in (launch.compiled for found in launches.values() for launch in found):
        assert re.search(r"ld\.global\S*\.v[24]", kernel.asm["ptx"]), "whole vectors are loaded"
        assert report_of(kernel, capability, tmp_path).spilled == 0
    assert launches.keys() == kernels_of(ops_kernels)


@pytest.mark.parametrize(("capability",), sampled(product(capabilities()), {(75,), (90,)}))
def test_sampler(capability: int, tmp_path: Path) -> None:
    """Logits are loaded 16 bytes at a time, weighed and added without float64, in registers."""
    compiled = {name: [launch.compiled for launch in found] for name, found in sampler_launches(capability).items()}
    assert {name: len(found) for name, found in compiled.items()} == {
        "survey_kernel": 2, "weigh_kernel": 1, "choose_kernel": 2, "collect_kernel": 1, "cut_kernel": 1,
    }  # fmt: skip
    for name in ("survey_kernel", "weigh_kernel", "collect_kernel"):
        for kernel in compiled[name]:
            assert re.search(r"ld\.global\S*\.v4", kernel.asm["ptx"])
    for name, most in MOST_IN_FLOAT64.items():
        found = [re.findall(r"^.*\.f64\b.*;", kernel.asm["ptx"], re.MULTILINE) for kernel in compiled[name]]
        assert bool(most) <= max(map(len, found)) <= most, name
    for name, kernel in ((name, kernel) for name, found in compiled.items() for kernel in found):
        report = report_of(kernel, capability, tmp_path)
        least = 256 if name == "cut_kernel" else 512  # it reads a few KiB once
        assert report.spilled <= A_FEW_BYTES and report.threads * report.programs_per_sm >= least, report


def attend_on(num_sms: int) -> Callable[[int], None]:
    """Return steps of a long context and some short ones, on a GPU of that size."""
    gpu, heads = Gpu((9, 0), num_sms), MODELS["smollm2"]
    return lambda size: attend(gpu, torch.bfloat16, heads, contexts=(4096, *(300,) * size))


OF_SOME_SIZE: dict[str, Callable[[int], None]] = {
    "sampler": sample,
    "ops": lambda size: fuse(torch.bfloat16, size),
    "attention, whole keys": attend_on(1),
    "attention, 2 to 16 spans": attend_on(13_000),
}


@pytest.mark.parametrize("run", OF_SOME_SIZE.values(), ids=OF_SOME_SIZE)
def test_batches_of_any_size_run_the_same_code(run: Callable[[int], None]) -> None:
    """Triton recompiles for an integer that is 1 or a multiple of 16, for seconds in the middle of steps."""
    found = []
    for size in (1, 2, 3, 16, 17, 256):
        with specializing(90) as specializations:
            run(size)
        found.append(specializations)
    assert found[0] and all(specializations == found[0] for specializations in found)


CASES = sorted(map(str, ROOT.glob("tests/engine/triton_*_cases.py")), key=lambda path: -Path(path).stat().st_size)
"""The largest files first: they soon have launched each kernel."""


def compile_cases(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with these arguments; kernels are compiled, and nothing is computed (see compiled_cases.py)."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "engine.compiled_cases",
        *arguments,
    ]
    path = os.pathsep.join(filter(None, (str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_each_kernel_of_the_cases() -> None:
    """At its first launch."""
    found = compile_cases("-m", "not sweep", *CASES)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]


@pytest.mark.sweep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("capability", (capabilities()[0], capabilities()[-1]))
def test_every_launch_of_the_cases(capability: int) -> None:
    """For the oldest GPU and the newest: between them compilers differ least. Hopper's kernels are compiled above."""
    found = compile_cases("--every-launch", "--capability", str(capability), *CASES)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]


BROKEN_CASES = """
from typing import Any

import torch
import triton


@triton.jit
def annotated_kernel(numbers: Any):
    pass


@triton.jit
def forgotten_kernel(numbers):
    pass


def test_a_launch():
    annotated_kernel[(1,)](torch.zeros(1))
"""


def test_a_kernel_that_does_not_compile_or_is_not_launched_is_found(tmp_path: Path) -> None:
    cases = tmp_path / "broken_cases.py"
    cases.write_text(BROKEN_CASES)
    found = compile_cases("-c", "pyproject.toml", str(cases))
    assert found.returncode == 1 and "Cannot access global variable Any" in found.stdout
    assert re.search("NOT LAUNCHED:.* annotated_kernel.* forgotten_kernel", found.stdout)
