"""A disk store's files: FOLDER/<model>/group-<n>/<block hash>.safetensors, one block each.

A file has the block's tensors, the name of their content, and a digest of both. Other files in the folder are never
touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.core.block import Key
from labengine.core.connector import BlockKV
from labengine.engine.external.store import StoreError
from labengine.system.atomic_write import TEMPORARY, write_atomically
from labengine.system.regular_file import read_regular

if TYPE_CHECKING:
    from torch import Tensor


FORMAT = "labengine-kv-1"
ABANDONED_SECONDS = 3600
"""Age at which a temporary file's writer must be gone; a block is written in milliseconds."""


def encode(fingerprint: str, key: Key, kv: BlockKV | None) -> bytes:
    """Return the file's bytes. A simulated model's block has only metadata."""
    metadata = _metadata(fingerprint, key, kv)
    if not kv:
        return _header_alone(metadata)
    from safetensors.torch import save

    # Copies, since safetensors refuses views that share memory.
    return save({name: tensor.clone().contiguous() for name, tensor in kv.items()}, metadata=metadata)


def decode(fingerprint: str, key: Key, data: bytes) -> BlockKV | None:
    """Return the block in a file. Raises StoreError unless it is exactly the block saved under this name."""
    tensors, metadata = _parse(data)
    expected = _metadata(fingerprint, key, tensors)
    if metadata != expected:
        raise StoreError(_difference(metadata, expected))
    return tensors


def _difference(found: dict[str, Any], expected: dict[str, str]) -> str:
    differing = [name for name in expected if found.get(name) != expected[name]]
    if "format" in differing:
        return f"its file is not in the format {FORMAT}"
    if differing in ([], ["digest"]):
        return "its file is damaged: the digest is wrong"
    return f"its file belongs to another block or is damaged: {differing[0]} is {found.get(differing[0])}"


def _parse(data: bytes) -> tuple[BlockKV | None, dict[str, Any]]:
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        has_tensors = bool(header.keys() - {"__metadata__"})
        if not has_tensors and len(data) != end:
            raise StoreError(f"its file is damaged: it has {len(data)} bytes, but its header says {end}")
        return _tensors(data) if has_tensors else None, header.get("__metadata__") or {}
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"its file is damaged: {error}") from None


def _tensors(data: bytes) -> BlockKV:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(data)
    except SafetensorError as error:
        raise StoreError(f"its file is damaged: {error}") from None


def _header_alone(metadata: dict[str, str]) -> bytes:
    """Return a safetensors file without tensors, so that a simulated model does not need the package."""
    header = json.dumps({"__metadata__": metadata}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def _metadata(fingerprint: str, key: Key, kv: BlockKV | None) -> dict[str, str]:
    group, block_hash = key
    named = {"format": FORMAT, "model": fingerprint, "group": str(group), "block_hash": block_hash.hex()}
    return {**named, "digest": _digest(named, kv or {})}


def _digest(named: dict[str, str], kv: BlockKV) -> str:
    """Return the SHA-256 of the block's name and of every tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode())
    for name, tensor in sorted(kv.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> memoryview:
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data


# -- the folder --------------------------------------------------------------------------------------------------------


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


def key_of(namespace: str, name: str) -> Key | None:
    """Return the key of a block's file; None for a file of another model."""
    folder, group, file = name.split("/")
    if folder != namespace:
        return None
    return int(group.removeprefix("group-")), bytes.fromhex(file.removesuffix(".safetensors"))


class BlockFolder:
    """The files of all models' blocks in one folder. Other processes may add and remove files at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises OSError."""
        return read_regular(self.path / name)

    def write(self, name: str, data: bytes, accessed_ns: int) -> None:
        """Add a file, completely or not at all. Raises OSError."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / name, data, mtime_ns=accessed_ns)

    def remove(self, name: str) -> None:
        """Delete a file if it exists. Raises OSError."""
        (self.path / name).unlink(missing_ok=True)

    def mark_accessed(self, name: str, accessed_ns: int) -> None:
        """Record the time of a use, so that the order of use outlives the process.

        Has no effect on a read-only folder.
        """
        with suppress(OSError):
            os.utime(self.path / name, ns=(accessed_ns, accessed_ns))

    def files(self) -> list[tuple[str, int]]:
        """Return (name, bytes) of every block's file, least recently used first."""
        found: list[tuple[int, str, int]] = []
        with suppress(OSError):  # another process may be removing a folder
            found.extend(self._stats())
        return [(name, size) for _, name, size in sorted(found)]

    def clean(self) -> None:
        """Remove temporary files of interrupted writers: those unchanged for an hour."""
        with suppress(OSError):  # another process may be removing a file or a folder
            for path in self.path.glob(f"*/group-*/{TEMPORARY}"):
                if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                    path.unlink(missing_ok=True)

    def _stats(self) -> Iterator[tuple[int, str, int]]:
        for path in self.path.glob("*/group-*/*.safetensors"):
            name = path.relative_to(self.path).as_posix()
            if _BLOCK.fullmatch(name):
                with suppress(FileNotFoundError):
                    stat = path.stat()
                    yield stat.st_mtime_ns, name, stat.st_size
