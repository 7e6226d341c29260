"""Compiles the C kernels with the machine's compiler, and keeps the result under a digest."""

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
"""Folder for kernels compiled by `python -m labengine.engine.native`, for all users of the installed package."""
PREBUILT = Path(__file__).with_name("prebuilt_images")
"""Folder in a platform's wheel with kernels for each instruction set; `make wheels` fills it."""
FLAGS = (
    *("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-shared", "-fPIC", "-pthread"),
)
"""The compiler's flags for every instruction set."""

Command = tuple[str, ...]


class CompileError(Exception):
    """Raised if there are no kernels for this machine; the message is half a sentence with the reason."""


def installed_file() -> Path:
    """Return the path of the kernels for this machine in the installed package."""
    return INSTALLED / _file_name()


def cached_file() -> Path:
    """Return the path of the kernels for this machine and $CC in the user's cache."""
    return cache_root() / "native" / _file_name(os.environ.get("CC", ""))


def _file_name(*facts: str) -> str:
    """Return a name for the facts, sources, flags and processor, as a library for this machine runs only here."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    for fact in (*FLAGS, *requested_instruction_set().flags, platform.machine(), processor(), *facts):
        digest.update(fact.encode() + b"\0")
    return f"{digest.hexdigest()[:24]}.so"


def keep(file: Path, image: bytes) -> Path:
    """Write a library to `file`, completely or not at all, and return the path. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, image, mode=0o644)
    return file


def compiled_image(compilers: Sequence[Command]) -> bytes:
    """Return the library made by the first working compiler. Raises CompileError with the first compiler's reason."""
    failures = []
    for compiler in compilers:
        try:
            return _compiled_by(compiler)
        except (CompileError, OSError) as failure:
            failures.append(failure)
    raise CompileError(str(failures[0])) from failures[0]


def find_compilers() -> list[Command]:
    """Return the installed compilers among $CC (may be "ccache gcc"), cc, gcc, clang. Raises CompileError if none."""
    if os.name != "posix":
        raise CompileError(f"the kernels can only be compiled on Linux and macOS, not on {platform.system()}")
    commands = [_requested(), ["cc"], ["gcc"], ["clang"]]
    found = [(path, *command[1:]) for command in commands if command and (path := shutil.which(command[0]))]
    if not found:
        raise CompileError("no C compiler (install gcc or clang, or name one in $CC)")
    return found


def _requested() -> Sequence[str]:
    try:
        return shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise CompileError(f"$CC cannot be parsed ({error}); write it as in a shell") from error


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
