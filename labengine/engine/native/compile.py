"""Compiles the C kernels for this machine on first use; kept by the hash of everything that went into them."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
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
    compilers = find_compilers()
    library = cache_root() / "native" / f"{_name(compilers)}.so"
    if not library.exists():
        print("labengine: compiling CPU kernels for this machine (once, some seconds)", file=sys.stderr, flush=True)
        _compile_with_any(compilers, library)
    return library


def find_compilers() -> list[list[str]]:
    """The words of $CC ("ccache gcc" has two), then cc, gcc, clang: those that are there. Raises CompileError."""
    commands = [_asked(), ["cc"], ["gcc"], ["clang"]]
    found = [[path, *command[1:]] for command in commands if command and (path := shutil.which(command[0]))]
    if not found:
        raise CompileError("no C compiler (install gcc or clang, or name one in $CC)")
    return found


def _asked() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise CompileError(f"$CC cannot be read ({error}); write it as in a shell") from error


def _compile_with_any(compilers: list[list[str]], library: Path) -> None:
    """With the first that can. Raises what the very first failed of: that is the one that was asked for."""
    failures = []
    for compiler in compilers:
        try:
            return _compile(compiler, library)
        except CompileError as failure:
            failures.append(failure)
    raise failures[0]


def _compile(compiler: list[str], library: Path) -> None:
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            built = Path(folder) / "kernels.so"
            command = [*compiler, *FLAGS, str(SOURCES / "labengine.c"), "-o", str(built), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode:
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
                name = " ".join([Path(compiler[0]).name, *compiler[1:]])
                raise CompileError(f"{name} could not compile the kernels: {first}")
            built.replace(library)  # whole or not at all: others may be compiling it too
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"the kernels could not be compiled: {error}") from error


def _name(compilers: list[list[str]]) -> str:
    """One name for sources, flags, compilers and processor: what is compiled for this machine runs only here."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    versions = (" ".join(compiler) + _version(compiler) for compiler in compilers)
    for fact in (*FLAGS, *versions, platform.machine(), processor()):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:24]


def _version(compiler: list[str]) -> str:
    try:
        return subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""  # it will fail to compile, too, and then says why


def processor() -> str:
    """The processor's model and what it can do, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
