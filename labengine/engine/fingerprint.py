"""Fingerprints: a name for everything that KV depends on (all bytes of the weights, the dtype, the block layout)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

from labengine.config import ConfigError, GroupSpec


class FileIdentity(NamedTuple):
    """Values that change with a file's content. A program cannot set ctime, as it can mtime."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


class ModelFiles:
    """config.json and the weights of a model directory, with their identities at the time of loading.

    Made before any file is read. Digests are computed on demand: a lab without an external tier needs none.
    """

    def __init__(self, model_dir: Path) -> None:
        self.directory = model_dir
        self._paths = [model_dir / "config.json", *sorted(model_dir.glob("*.safetensors"))]
        self._identities = self._look()

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 by file name. Raises ConfigError if a file has changed since it was loaded."""
        try:
            with ThreadPoolExecutor() as pool:  # hashlib releases Python's lock
                digests = [*pool.map(_sha256, self._paths, self._identities.values())]
        except OSError as error:
            raise ConfigError(f"{self.directory} cannot be read completely: {error}") from error
        self.require_unchanged()
        return {path.name: digest for path, digest in zip(self._paths, digests, strict=True)}

    @property
    def identities(self) -> tuple[tuple[Path, FileIdentity], ...]:
        """The files and their identities when this object was made; equal for the same, unchanged files."""
        return tuple(self._identities.items())

    def require_unchanged(self) -> None:
        """Raise ConfigError, naming the file, if one has changed since this object was made."""
        now = self._look()
        for path in self._paths:
            if now[path] != self._identities[path]:
                raise ConfigError(f"{path} has changed since it was loaded: close the lab and load the model again")

    def _look(self) -> dict[Path, FileIdentity]:
        try:
            return {path: _identity_of(path) for path in self._paths}
        except FileNotFoundError as error:
            missing = f"{error.filename} is missing: a model directory needs config.json and *.safetensors"
            raise ConfigError(missing) from None
        except OSError as error:
            raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from error


def _identity_of(path: Path) -> FileIdentity:
    stat = path.stat()
    return FileIdentity(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


@cache
def _sha256(path: Path, identity: FileIdentity) -> str:
    """Return a file's digest in hex. A process reads a file once, until its identity changes."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def fingerprint(
    files: Mapping[str, str],
    dtype: str,
    groups: Sequence[GroupSpec],
    layer_groups: Sequence[int],
    *,
    has_long_rope: bool = False,
) -> str:
    """Return 32 hex digits: equal for equal weights, dtype and layout, on any device and in any number of blocks.

    files: the SHA-256 of config.json and of each file of weights, by name. has_long_rope: see RopeSpec.is_long.
    """
    described = {
        "model": dict(files),
        "dtype": dtype,
        "groups": [[spec.kind, spec.block_size, spec.window] for spec in groups],
        "layer_groups": list(layer_groups),
        **({"rope": "long"} if has_long_rope else {}),
    }
    return blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=16).hexdigest()
