"""Compiles the C kernels with the machine's own compiler, and tests the result before it is used."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.native.instruction_set import processor, requested_instruction_set
from labengine.engine.native.trust import folder_distrust

SOURCES = Path(__file__).with_name("csrc")
PROBE = Path(__file__).with_name("probe.py")
FLAGS = (
    *("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    *("-shared", "-fPIC", "-pthread"),
)
"""The compiler's flags with every set of instructions."""
COMPILE_SECONDS = 180
"""Ten times as long as a slow machine takes; a compiler that takes longer hangs."""
PROBE_SECONDS = 60
WINDOWS_EXCEPTION = 0xC0000000
"""From here on exit statuses on Windows are exceptions that ended the process: 0xC000001D is an unknown instruction."""

Command = tuple[str, ...]

_hung: dict[Command, CompileError] = {}
"""Compilers that hung: they are not tried again in this process."""


class CompileError(Exception):
    """There are no kernels for this machine; the message is half a sentence with the reason."""


class HungError(CompileError):
    """A compiler, or the test of its result, did not end."""


def require_posix() -> None:
    """Raise CompileError on a system where the kernels are not compiled, but come with labengine's wheel."""
    if os.name != "posix":
        raise CompileError(f"the kernels are compiled on Linux and macOS only, not on {platform.system()}")


def find_compilers() -> list[Command]:
    """Return the installed ones of $CC ("ccache gcc" has two words), cc, gcc, clang. Raises CompileError for none."""
    commands = [_requested(), ["cc"], ["gcc"], ["clang"]]
    found = [(path, *command[1:]) for command in commands if command and (path := shutil.which(command[0]))]
    if not found:
        raise CompileError("no C compiler (install gcc or clang, or name one in $CC)")
    return found


def _requested() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise CompileError(f"$CC cannot be read ({error}); write it as in a shell") from error


def compiled_image(compilers: Sequence[Command]) -> bytes:
    """Return the tested library of the first compiler that succeeds. Raises the first compiler's error."""
    failures = []
    for compiler in compilers:
        try:
            return _compile(compiler)
        except CompileError as failure:
            failures.append(failure)
            if isinstance(failure, HungError):
                _hung[compiler] = failure
        except OSError as error:
            failures.append(CompileError(f"the kernels could not be compiled: {error}"))
    raise failures[0]


def _compile(compiler: Command) -> bytes:
    if compiler in _hung:
        raise _hung[compiler]
    with _private_folder() as folder:
        built = folder / "kernels.so"
        name = " ".join([Path(compiler[0]).name, *compiler[1:]])
        flags = [*FLAGS, *requested_instruction_set().flags]
        command = [*compiler, *flags, str(SOURCES / "labengine.c"), "-o", str(built), "-lm"]
        status, said = _run(command, folder, COMPILE_SECONDS, f"{name} took more than {COMPILE_SECONDS} s")
        if status:
            first = next((line for line in said.splitlines() if "error" in line), said.strip()[:300])
            raise CompileError(f"{name} could not compile the kernels: {first}")
        if not built.is_file():
            raise CompileError(f"{name} compiled nothing, and did not say so")
        image = built.read_bytes()
        _probe(built, name)
        return image


def check_image(image: bytes, name: str) -> None:
    """Test a library that `name` made, in another process. Raises CompileError where it is no use."""
    with _private_folder() as folder:
        built = folder / "kernels.so"
        built.write_bytes(image)
        _probe(built, name)


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Make a temporary folder that no other user can write to. Raises CompileError where $TMPDIR has no such place."""
    with TemporaryDirectory(prefix="labengine-") as folder:
        distrust = folder_distrust(Path(folder).resolve())
        if distrust is not None:
            raise CompileError(f"there is no folder to compile in: {distrust}; or name another in $TMPDIR")
        yield Path(folder)


def _probe(built: Path, name: str) -> None:
    """Test the library in another process, which bad code may end. Raises CompileError."""
    command = [sys.executable or "python3", "-I", "-S", str(PROBE), str(built)]
    status, said = _run(command, built.parent, PROBE_SECONDS, f"what {name} made of the kernels hangs")
    if status < 0:
        raise CompileError(f"what {name} made of the kernels dies: {signal.strsignal(-status)}")
    if status >= WINDOWS_EXCEPTION:
        raise CompileError(f"what {name} made of the kernels dies: exception {status:#x}")
    if status:
        raise CompileError(f"what {name} made of the kernels is no use: {(said.strip().splitlines() or ['?'])[-1]}")


def _run(command: Sequence[str], folder: Path, seconds: float, hangs: str) -> tuple[int, str]:
    """Return the exit status and the beginning of stderr.

    On a timeout (HungError) or interrupt the processes are killed.
    """
    errors = folder / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except BaseException as error:
            _kill(process)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise HungError(hangs) from None
            raise
    with errors.open(encoding="utf-8", errors="replace") as said:
        return status, said.read(100_000)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process; on POSIX, with all that it has started."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def image_name(compilers: Sequence[Command] = ()) -> str:
    """Return a name for sources, flags, processor and compilers: a library for this machine runs only here.

    A compiler is identified by its file's path, size and time: none is run to find an existing library.
    """
    flags = (*FLAGS, *requested_instruction_set().flags)
    return _digest(*flags, *map(_identity, compilers), platform.machine(), processor())


def sources_digest() -> str:
    """Return a name for the sources alone, with which libraries for other machines are identified."""
    return _digest()


def _digest(*facts: str) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + source.read_bytes())
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:24]


def _identity(compiler: Command) -> str:
    try:
        status = Path(compiler[0]).stat()
    except OSError:
        return repr(compiler)  # removed meanwhile: compiling will fail, and report it
    return repr((compiler, status.st_size, status.st_mtime_ns))
