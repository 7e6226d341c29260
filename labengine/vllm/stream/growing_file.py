"""What a running vLLM says, written into a file line by line: after a kill all but the newest line is there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from labengine.config import ConfigError
from labengine.vllm.stream.files import SUFFIX


class FullFileError(ConfigError):
    """Raised when a growing file has as many bytes as it may have: the recording ends."""


class GrowingFile:
    """A stream's file beside `out`, under a name that is free. Only this user may read it: it has the prompts.

    max_bytes: its size, at which it ends and says so. Raises ConfigError where it cannot be written.
    """

    def __init__(self, out: Path, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        for number in count():
            self.path = out.with_name(f"{out.stem}{f'.{number}' if number else ''}{SUFFIX}")
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:  # of a recording that was killed
                continue
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, line: bytes) -> None:
        """Write a line, handed to the system at once. Raises FullFileError behind the last one that fits."""
        if self._max_bytes is not None and self._num_bytes + len(line) > self._max_bytes:
            why = f"the recording has its {self._max_bytes:,} bytes (--max-bytes)"
            self._end(line, why)
            raise FullFileError(why)
        self._file.write(line + b"\n")
        self._num_bytes += len(line) + 1

    def _end(self, line: bytes, why: str) -> None:
        with suppress(ValueError, LookupError, TypeError):  # a header has no number
            message = json.loads(line)
            self._file.write(json.dumps({"n": message["n"], "t": message["t"], "end": why}).encode() + b"\n")

    def close(self, *, is_kept: bool) -> None:
        """Close the file; remove it where a complete recording was saved."""
        self._file.close()
        if not (is_kept and self._num_bytes):
            self.path.unlink(missing_ok=True)
