"""Programs that pose as C compilers, and libraries that pose as the kernels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from labengine.engine.native.compile import SOURCES, find_compilers

OF_BOTH_NUMBERS = ("run_program", "packed_size", "pack", "unpack")
FUNCTIONS = (
    *("team_new", "team_free", "scratch_bytes"),
    *(f"{name}_{suffix}" for name in OF_BOTH_NUMBERS for suffix in ("f32", "bf16")),
)


def compiler(folder: Path, script: str, name: str = "fake-cc") -> str:
    """A shell script; $out is the file that it is asked for. It writes its calls to the file `calls` beside it."""
    path = folder / name
    find_out = 'for word; do [ "$last" = -o ] && out="$word"; last="$word"; done'
    path.write_text(f'#!/bin/sh\necho "$@" >>"{folder}/calls"\n{find_out}\n{script}\n')
    path.chmod(0o755)
    return str(path)


def giving(folder: Path, library: bytes, name: str = "fake-cc") -> str:
    """A compiler that compiles anything into this library."""
    (folder / f"{name}.so").write_bytes(library)
    return compiler(folder, f'cp "{folder}/{name}.so" "$out"', name)


def num_calls(folder: Path) -> int:
    """How often compilers in `folder` were run."""
    calls = folder / "calls"
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def stub(folder: Path, source: str = "", *, without: str = "", op: str = "") -> bytes:
    """A library with the kernels' symbols and layout, whose functions return 0 and do nothing.

    source: added to it. without: a function that it lacks. op: what its struct Op has before our fields.
    """
    shutil.copytree(SOURCES, folder / "csrc", dirs_exist_ok=True)
    program = folder / "csrc" / "program.h"
    program.write_text(program.read_text().replace("  int32_t kind, finish;", f"  {op} int32_t kind, finish;"))
    functions = "\n".join(f"long {name}(void) {{ return 0; }}" for name in FUNCTIONS if name != without)
    (folder / "stub.c").write_text(f'#include "csrc/program.h"\n{functions}\n{source}\n')
    built = folder / "stub.so"
    command = [*find_compilers()[0], "-shared", "-fPIC", str(folder / "stub.c"), "-o", str(built)]
    subprocess.run(command, check=True, capture_output=True)
    return built.read_bytes()
