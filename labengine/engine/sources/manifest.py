"""A prepared directory's list of its own files, with sizes and digests: how damage is told from health, cheaply."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import TypedDict

from labengine.engine.sources.errors import SourceError

MANIFEST = "manifest.json"


class FileRecord(TypedDict):
    """One file as it was when its digest was last right; an unchanged size and mtime stand for an unchanged content."""

    size: int
    mtime_ns: int
    sha256: str


class Manifest(TypedDict):
    """Where the directory came from and what is in it."""

    source: str
    files: dict[str, FileRecord]


def write_manifest(directory: Path, *, source: str) -> None:
    """Record all files of `directory`."""
    files = {path.name: _record(path) for path in sorted(directory.iterdir()) if path.name != MANIFEST}
    _write(directory, {"source": source, "files": files})


def verify(directory: Path) -> None:
    """Raise SourceError unless every recorded file is whole. Reads only files whose mtime is not the recorded one."""
    manifest = _read(directory)
    files = manifest["files"]
    touched = {name: record for name, record in files.items() if not _looks_unchanged(directory / name, record)}
    if not touched:
        return
    for name, record in touched.items():
        now = _record(directory / name)
        if now["sha256"] != record["sha256"]:
            raise _damaged(directory, f"{name} has changed")
        files[name] = now
    with suppress(OSError):  # a read-only cache is then read in full every time
        _write(directory, manifest)


def known_digests(directory: Path) -> dict[str, str]:
    """The sha256 of each file that is still as it was recorded, by name; none for a directory without our manifest."""
    try:
        files = _read(directory)["files"]
        return {name: record["sha256"] for name, record in files.items() if _looks_unchanged(directory / name, record)}
    except (SourceError, TypeError, KeyError):
        return {}


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _looks_unchanged(path: Path, record: FileRecord) -> bool:
    try:
        now = path.stat()
    except OSError:
        raise _damaged(path.parent, f"{path.name} is missing") from None
    if now.st_size != record["size"]:
        raise _damaged(path.parent, f"{path.name} has {now.st_size} bytes and should have {record['size']}")
    return now.st_mtime_ns == record["mtime_ns"]


def _record(path: Path) -> FileRecord:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256_of(path)}


def _read(directory: Path) -> Manifest:
    try:
        manifest: Manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        manifest["files"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise _damaged(directory, f"{MANIFEST} is missing or unreadable") from None
    return manifest


def _write(directory: Path, manifest: Manifest) -> None:
    aside = directory / f".{MANIFEST}.{os.getpid()}"
    aside.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    aside.replace(directory / MANIFEST)


def _damaged(directory: Path, what: str) -> SourceError:
    return SourceError(f"the cached model in {directory} is damaged: {what}. Delete the directory and try again")
