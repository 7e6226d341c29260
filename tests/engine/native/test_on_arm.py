"""The kernels in C alone against plain loops: with each compiler here, and for ARM under QEMU.

The same cases everywhere: against_references.c. On Debian, with what the compilers for ARM need (`make emulators`):
apt-get install qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from labengine.engine.native.compile import FLAGS, SOURCES
from labengine.engine.native.instruction_set import INSTRUCTION_SETS, InstructionSet, machine

REFERENCES = Path(__file__).with_name("against_references.c")
COMPARISONS = 8_011_680
QEMU = "qemu-aarch64-static"
FOR_ARM = (["aarch64-linux-gnu-gcc"], ["clang", "--target=aarch64-linux-gnu"])
HERE = (["gcc"], ["clang"])
X86 = [isa for isa in INSTRUCTION_SETS.values() if isa.machine == "x86_64"]
ARM = [isa for isa in INSTRUCTION_SETS.values() if isa.machine == "aarch64"]


def built(compiler: list[str], isa: InstructionSet, folder: Path) -> str:
    """Compile the comparisons into a program that needs no libraries."""
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    program = str(folder / "against_references")
    command = [
        *compiler,
        *flags,
        *isa.flags,
        "-static",
        "-w",
        "-I",
        str(SOURCES),
        str(REFERENCES),
        "-o",
        program,
        "-lm",
    ]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    return program


def require(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} (make emulators installs it on Debian)")


def assert_passes(command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.startswith(f"{COMPARISONS} comparisons"), run.stdout[-500:] + run.stderr


@pytest.mark.sweep
@pytest.mark.parametrize("isa", ARM, ids=lambda isa: isa.name)
@pytest.mark.parametrize("compiler", FOR_ARM, ids=lambda compiler: compiler[0])
def test_on_arm(compiler: list[str], isa: InstructionSet, tmp_path: Path) -> None:
    require(compiler[0], *(() if machine() == "aarch64" else (QEMU, "aarch64-linux-gnu-gcc")))
    assert_passes([QEMU, "-cpu", "max", built(compiler, isa, tmp_path)])


@pytest.mark.sweep
@pytest.mark.skipif(machine() != "x86_64", reason="these are sets of x86-64")
@pytest.mark.parametrize("isa", X86, ids=lambda isa: isa.name)
@pytest.mark.parametrize("compiler", HERE, ids=lambda compiler: compiler[0])
def test_on_x86(compiler: list[str], isa: InstructionSet, tmp_path: Path) -> None:
    require(compiler[0])
    if lacking := isa.lacking():
        pytest.skip(f"this processor lacks {', '.join(lacking)}")
    assert_passes([built(compiler, isa, tmp_path)])


@pytest.mark.sweep
def test_the_comparisons_find_a_wrong_kernel(tmp_path: Path) -> None:
    """One that multiplies what it did not write, where a dimension is odd."""
    require("gcc")
    shutil.copytree(SOURCES, tmp_path / "csrc")
    changed = tmp_path / "csrc" / "linear_wide.h"
    right = "if (k < source->depth) wide[k] = 0;"
    assert right in changed.read_text()
    changed.write_text(changed.read_text().replace(right, ""))
    program = str(tmp_path / "wrong")
    command = ["gcc", "-std=gnu11", "-O2", "-pthread", "-w", "-I", str(tmp_path / "csrc")]
    subprocess.run([*command, str(REFERENCES), "-o", program, "-lm"], check=True)
    run = subprocess.run([program], capture_output=True, text=True)
    assert run.returncode == 1 and run.stdout.startswith("bf16: a product: found ")
