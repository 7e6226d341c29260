"""A disk store's folder: FOLDER/<model>/group-<n>/<block hash>.safetensors. Other files in it are never touched."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from labengine.atomic_write import TEMPORARY, write_atomically
from labengine.core.block import Key
from labengine.engine.abandoned_files import remove_abandoned

_BLOCK = re.compile(r"[A-Za-z0-9-]*-[0-9a-f]{12}/group-\d+/[0-9a-f]*\.safetensors")


def namespace_of(fingerprint: str) -> str:
    """Return a folder's name for a model.

    Readable, safe on any file system, and different for different fingerprints.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", fingerprint).strip("-")[:40]
    return f"{readable}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:12]}"


def file_name(namespace: str, key: Key) -> str:
    """Return the name of a block's file, relative to the folder."""
    group, block_hash = key
    return f"{namespace}/group-{group}/{block_hash.hex()}.safetensors"


class BlockFolder:
    """The files of all models' blocks in one folder. Other processes may add and remove files at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises OSError."""
        return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes, accessed_ns: int) -> None:
        """Add a file, whole or not at all. Raises OSError."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / name, data, mtime_ns=accessed_ns)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there. Raises OSError."""
        (self.path / name).unlink(missing_ok=True)

    def mark_accessed(self, name: str, accessed_ns: int) -> None:
        """Record the time of a use, so that the order of uses outlives the process.

        Has no effect on a read-only folder.
        """
        with suppress(OSError):
            os.utime(self.path / name, ns=(accessed_ns, accessed_ns))

    def files(self) -> list[tuple[str, int]]:
        """Return (name, bytes) of every block's file, the least recently used first."""
        found: list[tuple[int, str, int]] = []
        with suppress(OSError):  # another process may be removing a folder
            found.extend(self._stats())
        return [(name, size) for _, name, size in sorted(found)]

    def clean(self) -> None:
        """Remove temporary files of interrupted writers."""
        with suppress(OSError):
            remove_abandoned(self.path.glob(f"*/group-*/{TEMPORARY}"))

    def _stats(self) -> Iterator[tuple[int, str, int]]:
        for path in self.path.glob("*/group-*/*.safetensors"):
            name = path.relative_to(self.path).as_posix()
            if _BLOCK.fullmatch(name):
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    yield stat.st_mtime_ns, name, stat.st_size
