"""Compiles the C kernels with the machine's own compiler, and keeps the result under a digest."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.native.instruction_set import processor, requested_instruction_set
from labengine.engine.sources.cache import cache_root
from labengine.system.atomic_write import write_atomically

SOURCES = Path(__file__).with_name("csrc")
INSTALLED = Path(__file__).with_name("compiled")
"""Kernels that `python -m labengine.engine.native` compiled, for all users of the installed package."""
PREBUILT = Path(__file__).with_name("prebuilt_images")
"""Folder of a platform's wheel with kernels for each set of instructions; `make wheels` fills it."""
FLAGS = (
    *("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-shared", "-fPIC", "-pthread"),
)
"""The compiler's flags with every set of instructions."""

Command = tuple[str, ...]


class CompileError(Exception):
    """There are no kernels for this machine; the message is half a sentence with the reason."""


def installed_file() -> Path:
    """Return where kernels for this machine lie in the installed package."""
    return INSTALLED / _file_name()


def cached_file() -> Path:
    """Return where kernels for this machine lie in the user's cache: each $CC has its own."""
    return cache_root() / "native" / _file_name(os.environ.get("CC", ""))


def _file_name(*facts: str) -> str:
    """Return a name for the facts, sources, flags and processor: a library for this machine runs only here."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    for fact in (*FLAGS, *requested_instruction_set().flags, platform.machine(), processor(), *facts):
        digest.update(fact.encode() + b"\0")
    return f"{digest.hexdigest()[:24]}.so"


def keep(file: Path, image: bytes) -> Path:
    """Write a library to its place, whole or not at all, and return the place. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, image, mode=0o644)
    return file


def compiled_image(compilers: Sequence[Command]) -> bytes:
    """Return the library that the first working compiler makes. Raises CompileError with the first one's reason."""
    failures = []
    for compiler in compilers:
        try:
            return _compiled_by(compiler)
        except (CompileError, OSError) as failure:
            failures.append(failure)
    raise CompileError(str(failures[0])) from failures[0]


def find_compilers() -> list[Command]:
    """Return the installed ones of $CC ("ccache gcc" has two words), cc, gcc, clang. Raises CompileError for none."""
    if os.name != "posix":
        raise CompileError(f"the kernels are compiled on Linux and macOS only, not on {platform.system()}")
    commands = [_requested(), ["cc"], ["gcc"], ["clang"]]
    found = [(path, *command[1:]) for command in commands if command and (path := shutil.which(command[0]))]
    if not found:
        raise CompileError("no C compiler (install gcc or clang, or name one in $CC)")
    return found


def _requested() -> Sequence[str]:
    try:
        return shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise CompileError(f"$CC cannot be read ({error}); write it as in a shell") from error


def _compiled_by(compiler: Command) -> bytes:
    with TemporaryDirectory(prefix="labengine-") as folder:
        built = Path(folder) / "kernels.so"
        flags = (*FLAGS, *requested_instruction_set().flags)
        command = [*compiler, *flags, str(SOURCES / "labengine.c"), "-o", str(built), "-lm"]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if run.returncode:
            said = next((line for line in run.stderr.splitlines() if "error" in line), run.stderr.strip()[:300])
            name = " ".join([Path(compiler[0]).name, *compiler[1:]])
            raise CompileError(f"{name} could not compile the kernels: {said}")
        return built.read_bytes()
