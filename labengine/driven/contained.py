"""A process of another engine, which ends with all that it has started, and leaves no file."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from labengine.engine.interrupts import interrupts_deferred
from labengine.isolation.confinement import end_session
from labengine.isolation.marked import MARK, end_marked, new_mark
from labengine.system.closing import Closing


class ContainedProcess(Closing):
    """A process in a session of its own, so that Ctrl-C in a terminal or a notebook does not end its imports.

    log: what it prints to stderr.
    """

    def __init__(self) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        """Holds the engine's temporary files, which it cannot delete when it is ended."""
        self._mark = new_mark()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> None:
        """Start it; `close` ends it, also if an interrupt ends this. options: those of Popen. Raises OSError."""
        own = {MARK: self._mark, "TMPDIR": self._folder.name}
        with interrupts_deferred():
            self._process = subprocess.Popen(
                command, stderr=self.log, env={**environment, **own}, start_new_session=True, **options
            )

    @property
    def pipes(self) -> tuple[int, int]:
        """The descriptors of its stdin and stdout, if these are pipes."""
        assert self._process and self._process.stdin and self._process.stdout
        return self._process.stdin.fileno(), self._process.stdout.fileno()

    @property
    def has_ended(self) -> bool:
        """True if it has ended by itself, was closed, or has not started."""
        return self._process is None or self._process.poll() is not None

    def status(self, seconds: float) -> int:
        """Return how it ended, or kill it after these seconds."""
        assert self._process
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """End the process and all that it has started. Twice is harmless."""
        if self.log.closed:
            return
        with interrupts_deferred():
            if self._process is not None:
                end_session(self._process.pid)
                self._process.kill()
                self._process.wait()
                for pipe in filter(None, (self._process.stdin, self._process.stdout)):
                    pipe.close()
            end_marked(self._mark, self.log.fileno())
            self.log.close()
            self._folder.cleanup()
