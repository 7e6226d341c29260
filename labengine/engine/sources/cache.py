"""The user's cache: prepared models, each with a list of its files."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

from labengine.engine.sources.catalogue import SourceError, WheelModel
from labengine.engine.sources.digests import digests_of, hash_files
from labengine.system.atomic_write import write_atomically
from labengine.system.regular_file import read_regular

MANIFEST = "manifest.json"


class FileRecord(TypedDict):
    """One written file: bytes, and hex digest."""

    size: int
    sha256: str


class Manifest(TypedDict):
    """The directory's source and files."""

    source: str
    files: dict[str, FileRecord]


def write_manifest(directory: Path, *, source: str) -> None:
    """Record all files of `directory`."""
    digests = hash_files(_files_in(directory), f"{directory.name}: hash")
    files: dict[str, FileRecord] = {
        path.name: {"size": path.stat().st_size, "sha256": digest} for path, digest in digests.items()
    }
    manifest: Manifest = {"source": source, "files": files}
    write_atomically(directory / MANIFEST, json.dumps(manifest, indent=1).encode())


def verify(directory: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Raise SourceError unless the directory holds the recorded files, intact, and no others.

    Each file is read completely once per process, and again when its size, times or inode have changed. meanwhile:
    called while files are read, if any is.
    """
    files = _read(directory)["files"]
    for name, record in files.items():
        _require_size(directory / name, record["size"])
    if foreign := sorted({path.name for path in _files_in(directory)} - set(files)):
        raise _damaged(directory, f"{foreign[0]} is not part of it")
    digests = _digests(directory, files, meanwhile)
    for name, record in files.items():
        if digests[directory / name] != record["sha256"]:
            raise _damaged(directory, f"{name} has changed: its sha256 is not the one in {MANIFEST}")


def _digests(directory: Path, names: Iterable[str], meanwhile: Callable[[], object]) -> dict[Path, str]:
    paths = [directory / name for name in names]
    try:
        return digests_of(paths, f"{directory.name}: verify", meanwhile=meanwhile)
    except OSError as error:
        raise _damaged(directory, f"it cannot be read: {error}") from None


def _files_in(directory: Path) -> list[Path]:
    """Return the visible files, sorted by name, without the manifest."""
    return [path for path in sorted(directory.iterdir()) if path.name != MANIFEST and not path.name.startswith(".")]


def _require_size(path: Path, expected: int) -> None:
    try:
        found = path.stat().st_size
    except OSError:
        raise _damaged(path.parent, f"{path.name} is missing") from None
    if found != expected:
        raise _damaged(path.parent, f"{path.name} has {found} bytes and should have {expected}")


def _read(directory: Path) -> Manifest:
    try:
        manifest: Manifest = json.loads(read_regular(directory / MANIFEST))
        for record in manifest["files"].values():
            int(record["size"]), str(record["sha256"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _damaged(directory, f"{MANIFEST} is missing or unreadable") from None
    return manifest


def _damaged(directory: Path, what: str) -> SourceError:
    return SourceError(
        f"the cached model in {directory} is damaged: {what}. Delete the directory; it is made anew at the next start"
    )


FORMAT = "bf16-1"
"""Version of the conversion. A new one gets a new name, and so a new directory."""


# -- prepared models ---------------------------------------------------------------------------------------------------


def cache_root() -> Path:
    """Return LABENGINE_CACHE, else XDG_CACHE_HOME/labengine, else ~/.cache/labengine."""
    if path := os.environ.get("LABENGINE_CACHE"):
        return Path(path).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "labengine"


def cached_dir(model: WheelModel) -> Path:
    """Return the directory of a prepared model, which need not exist."""
    return cache_root() / f"{model.name}-{FORMAT}-{model.sha256[:12]}"


def prepared_dir(model: WheelModel, meanwhile: Callable[[], object] = lambda: None) -> Path:
    """Return the model's directory, verified, and prepared if it is not there; see verify. Raises SourceError."""
    root, target = cache_root(), cached_dir(model)
    if not target.exists():
        try:
            root.mkdir(parents=True, exist_ok=True)
            with _lock(root, model.name):
                if not target.exists():
                    _prepare(model, target)
        except (OSError, NotImplementedError) as error:
            hint = "set LABENGINE_CACHE to a directory with room"
            raise SourceError(f"cannot prepare {model.name!r} in {root}: {error}; {hint}") from error
    verify(target, meanwhile)
    return target


def _prepare(model: WheelModel, target: Path) -> None:
    """Build in a temporary directory, then rename.

    The lock is held, so existing temporary directories are abandoned.
    """
    from labengine.engine.sources.build import build_model_dir

    prefix = f".preparing-{model.name}-"
    for orphan in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(orphan, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=target.parent) as work:
        finished = build_model_dir(model, Path(work))
        write_manifest(finished, source=", ".join(f"{part.requirement}: {part.member}" for part in model.parts))
        finished.rename(target)


@contextmanager
def _lock(root: Path, name: str) -> Iterator[None]:
    """Let one process at a time prepare a model; the others wait and then find it."""
    from filelock import FileLock, Timeout

    lock = FileLock(root / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"labengine: another process is preparing {name}, waiting for it", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
