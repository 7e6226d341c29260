"""What ptxas says of a compiled kernel, and how many programs of it an SM holds: no GPU is needed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.nvidia import compiler

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
SHARED_PER_SM_KIB = {75: 64, 80: 164, 86: 100, 89: 100, 90: 228, 100: 228, 120: 100}
THREADS_PER_SM = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}
REGISTERS_PER_SM = 65_536
AS_TRITON_DOES = ["--regAllocOptLevel=2"] if TRITON >= (3, 5) else []
RESERVED_SHARED = {75: 0}
"""Shared memory that CUDA takes of each program; 1 KiB from sm_80 on."""


@dataclass(frozen=True)
class Report:
    """Registers per thread, bytes spilled, threads and bytes of shared memory of one program."""

    capability: int
    registers: int
    spilled: int
    threads: int
    shared: int

    @property
    def programs_per_sm(self) -> int:
        """Registers are given to warps, in units of 256."""
        warp_registers = -(-self.registers * 32 // 256) * 256
        shared = self.shared + RESERVED_SHARED.get(self.capability, 1024)
        return min(
            SHARED_PER_SM_KIB[self.capability] * 1024 // max(1, shared),
            REGISTERS_PER_SM // (warp_registers * (self.threads // 32)),
            THREADS_PER_SM[self.capability] // self.threads,
        )


def report_of(compiled: Any, capability: int, folder: Path) -> Report:
    """Assemble a kernel's PTX once more, with figures."""
    source = folder / "kernel.ptx"
    source.write_text(compiled.asm["ptx"])
    target = re.search(r"^\.target (\w+)", compiled.asm["ptx"], re.MULTILINE)
    assert target is not None
    options = ["-v", *AS_TRITON_DOES, f"--gpu-name={target[1]}"]
    options += [] if compiled.metadata.enable_fp_fusion else ["--fmad=false"]
    child = subprocess.run(
        [_assembler(capability), *options, source, "-o", folder / "kernel.cubin"], capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    spills, registers = (re.findall(words, child.stderr) for words in (r"(\d+) bytes spill", r"Used (\d+) registers"))
    assert len(spills) == 2 and len(registers) == 1, child.stderr
    threads = compiled.metadata.num_warps * 32
    return Report(capability, int(registers[0]), sum(map(int, spills)), threads, compiled.metadata.shared)


def _assembler(capability: int) -> str:
    """Return the path of the one that Triton takes; its wheel has two, and 3.2's has one."""
    if TRITON >= (3, 3):
        return str(compiler.get_ptxas(capability).path)
    return str(Path(compiler.__file__).parent / "bin" / "ptxas")
