"""Hashing of large files: several at once, with a progress bar if it takes over a second."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Any

CHUNK_BYTES = 1 << 22
QUIET_SECONDS = 1.0
"""Seconds without a progress bar."""


def sha256_of(path: Path, on_bytes: Callable[[int], object] = lambda _: None) -> str:
    """Return the hex digest of a file. on_bytes gets the number of bytes read since its last call."""
    digest = sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            on_bytes(len(chunk))
    return digest.hexdigest()


def hash_files(paths: Sequence[Path], label: str) -> dict[Path, str]:
    """Return each file's SHA-256 in hex. Raises OSError; an interrupt ends it within milliseconds."""
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
