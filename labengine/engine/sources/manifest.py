"""A prepared directory's list of its own files, with sizes and digests, to detect damage."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from labengine.atomic_write import write_atomically
from labengine.engine.sources.catalogue import SourceError
from labengine.engine.sources.digests import digests_of, hash_files

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


def verify(directory: Path) -> None:
    """Raise SourceError unless the directory holds the recorded files, intact, and no others.

    Each file is read completely once per process, and again when its size, times or inode have changed.
    """
    files = _read(directory)["files"]
    for name, record in files.items():
        _require_size(directory / name, record["size"])
    if foreign := sorted({path.name for path in _files_in(directory)} - set(files)):
        raise _damaged(directory, f"{foreign[0]} is not part of it")
    digests = _digests(directory, files)
    for name, record in files.items():
        if digests[directory / name] != record["sha256"]:
            raise _damaged(directory, f"{name} has changed: its sha256 is not the one in {MANIFEST}")


def _digests(directory: Path, names: Iterable[str]) -> dict[Path, str]:
    try:
        return digests_of([directory / name for name in names], f"{directory.name}: verify")
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
        manifest: Manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        for record in manifest["files"].values():
            int(record["size"]), str(record["sha256"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _damaged(directory, f"{MANIFEST} is missing or unreadable") from None
    return manifest


def _damaged(directory: Path, what: str) -> SourceError:
    return SourceError(
        f"the cached model in {directory} is damaged: {what}. Delete the directory; it is made anew at the next start"
    )
