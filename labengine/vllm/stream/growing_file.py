"""What a running vLLM says, written into a file line by line: after a kill all but the newest line is there."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType

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


ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class EndingSignals:
    """In the block, Ctrl-C, `docker stop`, systemd and a dropped terminal end a wait, and nothing else.

    They raise KeyboardInterrupt from `raise_now` on; one that came before raises there. A script that starts a command
    with & has it ignore SIGINT; a recording that was asked for does not.
    """

    def __init__(self) -> None:
        self._may_raise = self._is_asked = False

    def raise_now(self) -> None:
        """Let signals raise from here on."""
        self._may_raise = True
        if self._is_asked:
            raise KeyboardInterrupt

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True
        if self._may_raise:
            for ignored in ENDING:
                signal.signal(ignored, signal.SIG_IGN)  # what was recorded is written now
            raise KeyboardInterrupt

    def __enter__(self) -> EndingSignals:
        self._before = {number: signal.signal(number, self._end) for number in ENDING}
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
