"""SHA-256 of files; a digest is kept until the file's identity changes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns
from typing import NamedTuple, Protocol

from labengine.engine.sources.hashing import hash_files

SETTLED_NS = 2_000_000_000
"""A file that changed less than this ago may change again under the same times: some file systems tick in 2 s."""


class FileIdentity(NamedTuple):
    """Values that change with a file's content. A program cannot set ctime, as it can mtime."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


Known = dict[str, tuple[FileIdentity, str]]
"""Identity and hex digest, by the file's real path."""

_KNOWN: Known = {}
"""Digests of files that this process has read."""


def identity_of(path: Path) -> FileIdentity:
    """Return the identity of a file. Raises OSError."""
    stat = path.stat()
    return FileIdentity(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class DigestMemory(Protocol):
    """Digests that outlive the process."""

    def known(self) -> Known:
        """Return all digests."""
        ...

    def add(self, fresh: Known) -> None:
        """Keep these digests too."""
        ...


def digests_of(paths: Iterable[Path], label: str, memory: DigestMemory | None = None) -> dict[Path, str]:
    """Return each file's SHA-256 in hex; a file is read unless this process knows the digest of its identity.

    label: text of the progress bar, which appears after a second. memory: trusted too, and extended. Raises OSError.
    """
    now = time_ns()
    identities = {path: identity_of(path) for path in paths}
    found = _found_in(_KNOWN, identities)
    if memory is not None and len(found) < len(identities):
        found |= _found_in(memory.known(), identities)
    unknown = [path for path in identities if path not in found]
    computed = hash_files(unknown, label) if unknown else {}
    settled = [path for path in computed if _is_settled(path, identities[path], now)]
    fresh = {os.path.realpath(path): (identities[path], computed[path]) for path in settled}
    _KNOWN.update(fresh)
    if memory is not None and fresh:
        memory.add(fresh)
    return found | computed


def _found_in(known: Known, identities: Mapping[Path, FileIdentity]) -> dict[Path, str]:
    entries = ((path, identity, known.get(os.path.realpath(path))) for path, identity in identities.items())
    return {path: entry[1] for path, identity, entry in entries if entry is not None and entry[0] == identity}


def _is_settled(path: Path, identity: FileIdentity, before: int) -> bool:
    """Return True if the file did not change while it was read, and long enough before to notice the next change."""
    return identity_of(path) == identity and max(identity.mtime_ns, identity.ctime_ns) < before - SETTLED_NS
