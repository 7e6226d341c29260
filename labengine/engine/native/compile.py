"""Compiles the C kernels for this machine on first use; kept by the hash of everything that went into them."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from labengine.engine.sources.cache import cache_root

SOURCES = Path(__file__).with_name("csrc")
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-shared", "-fPIC", "-pthread"),
)


class CompileError(Exception):
    """There are no kernels for this machine; the message is half a sentence that says why."""


@cache
def compiled_library() -> Path:
    """The shared library, compiled if it is not there yet (a few seconds). Raises CompileError."""
    compiler = find_compiler()
    library = cache_root() / "native" / f"{_name(compiler)}.so"
    if not library.exists():
        print("labengine: compiling CPU kernels for this machine (once, some seconds)", file=sys.stderr, flush=True)
        _compile(compiler, library)
    return library


def find_compiler() -> str:
    """$CC, or cc, gcc, clang, whichever is there first. Raises CompileError."""
    asked = os.environ.get("CC", "").split()
    for name in [*asked[:1], "cc", "gcc", "clang"]:
        found = shutil.which(name)
        if found:
            return found
    raise CompileError("no C compiler (install gcc or clang, or name one in $CC)")


def _compile(compiler: str, library: Path) -> None:
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            built = Path(folder) / "kernels.so"
            command = [compiler, *FLAGS, str(SOURCES / "labengine.c"), "-o", str(built), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode:
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
                raise CompileError(f"{Path(compiler).name} could not compile the kernels: {first}")
            built.replace(library)  # whole or not at all: others may be compiling it too
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"the kernels could not be compiled: {error}") from error


def _name(compiler: str) -> str:
    """One name for sources, flags, compiler and processor: what is compiled for this machine runs only here."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    for fact in (*FLAGS, version, platform.machine(), processor()):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:24]


def processor() -> str:
    """The processor's model and what it can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
