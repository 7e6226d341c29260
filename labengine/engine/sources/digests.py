"""SHA-256 of files: several at once, with a progress bar if it takes over a second.

A digest is kept until the file's identity changes: large weights are read once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import monotonic, time_ns
from types import TracebackType
from typing import Any, NamedTuple

CHUNK_BYTES = 1 << 24
"""Bytes read at a time: after each chunk the thread waits up to 5 ms for Python's lock if torch is being imported."""
QUIET_SECONDS = 1.0
"""Seconds without a progress bar."""


def sha256_of(path: Path, on_bytes: Callable[[int], object] = lambda _: None) -> str:
    """Return the hex digest of a file. on_bytes gets the number of bytes read since its last call."""
    digest, chunk = sha256(), memoryview(bytearray(min(CHUNK_BYTES, path.stat().st_size or CHUNK_BYTES)))
    with path.open("rb", buffering=0) as file:
        while num_bytes := file.readinto(chunk):
            digest.update(chunk[:num_bytes])
            on_bytes(num_bytes)
    return digest.hexdigest()


def hash_files(paths: Sequence[Path], label: str, meanwhile: Callable[[], object] = lambda: None) -> dict[Path, str]:
    """Return each file's SHA-256 in hex. Raises OSError; an interrupt ends it after the chunks being read.

    meanwhile: called while threads read; no progress is shown until it returns.
    """
    stop, num_read = Event(), [0] * len(paths)

    def read(index: int) -> str:
        def count(num_bytes: int) -> None:
            num_read[index] += num_bytes
            if stop.is_set():
                raise InterruptedError(f"{paths[index]} was not read to its end")

        return sha256_of(paths[index], count)

    total = sum(path.stat().st_size for path in paths)
    # Threads help: hashlib releases the interpreter's lock.
    with ThreadPoolExecutor(min(len(paths), os.cpu_count() or 1)) as pool, _LateBar(label, total) as bar:
        digests = [pool.submit(read, index) for index in range(len(paths))]
        try:
            meanwhile()
            while wait(digests, timeout=0.1).not_done:
                bar.show(sum(num_read))
        finally:
            stop.set()
        return {path: digest.result() for path, digest in zip(paths, digests, strict=True)}


class _LateBar:
    """A progress bar that appears only after QUIET_SECONDS: in a notebook even a hidden one opens comms."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._began = monotonic()
        self._bar: Any = None

    def show(self, num_bytes: int) -> None:
        """Update the bar, and create it when it is time."""
        if self._bar is None and monotonic() - self._began > QUIET_SECONDS:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self._total, unit="B", unit_scale=True, desc=self._label, leave=False)
        if self._bar is not None:
            self._bar.update(num_bytes - self._bar.n)

    def __enter__(self) -> _LateBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            if kind is None:
                self._bar.update(self._total - self._bar.n)  # a bar that ends early turns red in a notebook, and stays
            self._bar.close()


# -- digests by the identity of a file ---------------------------------------------------------------------------------


SETTLED_NS = 2_000_000_000
"""A file that changed less than this ago may change again under the same times: some file systems tick in 2 s."""


class FileIdentity(NamedTuple):
    """Values that change with a file's content. A program cannot set ctime, as it can mtime."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


_KNOWN: dict[str, tuple[FileIdentity, str]] = {}
"""Identity and hex digest of files that this process has read, by real path."""


def identity_of(path: Path) -> FileIdentity:
    """Return the identity of a file. Raises OSError."""
    stat = path.stat()
    return FileIdentity(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def digests_of(paths: Iterable[Path], label: str, meanwhile: Callable[[], object] = lambda: None) -> dict[Path, str]:
    """Return each file's SHA-256 in hex; a file is read unless this process knows the digest of its identity.

    label: text of the progress bar, which appears after a second. meanwhile: called while files are read, if any is.
    Raises OSError.
    """
    now = time_ns()
    identities = {path: identity_of(path) for path in paths}
    found = _known(identities)
    unknown = [path for path in identities if path not in found]
    computed = hash_files(unknown, label, meanwhile) if unknown else {}
    settled = [path for path in computed if _is_settled(path, identities[path], now)]
    _KNOWN.update({os.path.realpath(path): (identities[path], computed[path]) for path in settled})
    return found | computed


def _known(identities: Mapping[Path, FileIdentity]) -> dict[Path, str]:
    entries = ((path, identity, _KNOWN.get(os.path.realpath(path))) for path, identity in identities.items())
    return {path: entry[1] for path, identity, entry in entries if entry is not None and entry[0] == identity}


def _is_settled(path: Path, identity: FileIdentity, before: int) -> bool:
    """Return True if the file did not change while it was read, and long enough before to notice the next change."""
    return identity_of(path) == identity and max(identity.mtime_ns, identity.ctime_ns) < before - SETTLED_NS
