"""A stream as files in a folder: a full file is followed by one with header and keyframe; the oldest are removed."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from labengine_vllm.encoding import encoded, line_of

MAX_FILE_BYTES = 256 << 20
"""Size at which the next file begins. LABENGINE_TAP_FILE_MB sets it."""

MAX_FILES = 8
"""Most files of a rank in a folder, over all starts of the engine. Removing an older file removes the first part of its
stream. LABENGINE_TAP_FILES sets it."""

MAX_DIGITS = 18
"""Most digits of a setting, because Python refuses to read a number of 4,301 digits."""

SUFFIX = ".labstream"
_NAME = re.compile(rf"rank(?P<rank>\d+)-.+-\d+{re.escape(SUFFIX)}")


class FileWriter:
    """Writes one stream into DIR/rankR-ID-0001.labstream and so on. Only this user may read them.

    Each line is JSON: the header first, then a message each. Raises OSError if the folder cannot be written.
    """

    def __init__(
        self, folder: str, header: dict[str, Any], max_bytes: int | None = None, max_files: int | None = None
    ) -> None:
        self._folder, self._header = Path(folder), header
        self._max_bytes = max_bytes or _setting("LABENGINE_TAP_FILE_MB", MAX_FILE_BYTES >> 20) << 20
        self._max_files = max_files or _setting("LABENGINE_TAP_FILES", MAX_FILES)
        self._num_begun = self._num_bytes = 0
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = self._begin()

    @property
    def wants_keyframe(self) -> bool:
        """True once the file is full."""
        return self._num_bytes >= self._max_bytes

    def write(self, message: dict[str, Any]) -> None:
        """Write one message; a keyframe begins the next file if this one is full."""
        if self.wants_keyframe and "k" in message:
            self._file.close()
            self._file = self._begin()
        self._write(line_of(message))

    def flush(self) -> None:
        """Flush written data to the system."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _begin(self) -> BinaryIO:
        self._num_begun += 1
        name = f"rank{self._header['rank']}-{self._header['stream']}-{self._num_begun:04}{SUFFIX}"
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # on a file system without locks nothing shows that the file is in use
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file, self._num_bytes = os.fdopen(descriptor, "wb", buffering=1 << 20), 0
        self._write(encoded({**self._header, "file": self._num_begun}))
        self._remove_oldest()
        return self._file

    def _remove_oldest(self) -> None:
        """Remove this rank's oldest files beyond the limit, including earlier starts', but no file being written."""
        found = [
            (file.stat().st_mtime_ns, file.name, file)
            for file in self._folder.glob(f"*{SUFFIX}")
            if self._is_ours(file)
        ]
        for _, _, file in sorted(found)[: -self._max_files]:
            if not _is_in_use(file):
                file.unlink(missing_ok=True)

    def _is_ours(self, file: Path) -> bool:
        name = _NAME.fullmatch(file.name)
        return name is not None and int(name["rank"]) == self._header["rank"] and file.is_file()

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._num_bytes += len(line) + 1


def _is_in_use(file: Path) -> bool:
    """Return True for a file that is locked by its writer."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True


def _setting(name: str, default: int) -> int:
    """Return an integer >= 1 from the environment. Raises ValueError for anything else."""
    text = os.environ.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < 1:
        raise ValueError(f"{name} must be a positive integer, got {text[:40]!r}")
    return int(text)
