"""Scripts run in a driven engine's interpreter, to see whether they fail."""

from __future__ import annotations

import ast
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from labengine.driven.driven import Driven
from labengine.driven.process import environment
from labengine.driven.script import GREEN, STARTED
from labengine.engine.interrupts import interrupts_deferred
from labengine.isolation.confinement import end_session
from labengine.isolation.marked import MARK, end_marked, new_mark
from labengine.record.wording import readable
from labengine.system.closing import Closing

RUNNING_S = 300.0
"""Seconds for a script, which imports the engine, and has an alarm a minute after that."""
MAX_OUTPUT = 2**26
"""Most bytes that a script may write to a file."""
MAX_DATA = 2**34
"""Most bytes of its private memory."""


@dataclass(frozen=True)
class PlayedScript:
    """A script that has ended. status: its exit code, or the negative number of a signal."""

    status: int
    output: str
    errors: str

    @property
    def is_green(self) -> bool:
        """True if it has reached its end without an error."""
        return self.status == 0 and self.output.rstrip().endswith(GREEN)

    @property
    def is_red(self) -> bool:
        """True if the engine has started, and the script has failed, as its exit code tells."""
        return self.status != 0 and self._has_started

    @property
    def _has_started(self) -> bool:
        return any(line.startswith(STARTED) for line in self.output.splitlines())

    @property
    def said(self) -> str:
        """The error, or what is missing, in a line."""
        if self.status == -signal.SIGALRM:
            return "it does not end"
        if self.status < 0:
            return f"its process is ended by signal {-self.status}"
        if not self.status:
            return "it finds no error" if self.is_green else "its process exits with 0 before the end"
        lines = self.errors.strip().splitlines()
        error = readable(lines[-1], 600) if lines else f"its process exits with {self.status}"
        return error if self._has_started else f"the engine does not start ({error})"

    @property
    def states(self) -> list[Any]:
        """The engine's state after each call."""
        lines = [line for line in self.output.splitlines() if line.startswith("call ")]
        return [ast.literal_eval(line.partition(": ")[2]) for line in lines]


def played(scripts: Sequence[tuple[Driven, str]]) -> list[PlayedScript]:
    """Run scripts, each in an engine's interpreter, at the same time; return how each has ended."""
    with ExitStack() as started:
        with interrupts_deferred():
            running = [started.enter_context(_Running(*script)) for script in scripts]
        return [one.played() for one in running]


class _Running(Closing):
    """A script in progress. A context manager, which leaves no process."""

    def __init__(self, driven: Driven, text: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        """Holds the script and its temporary files."""
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - `close` does
        self._mark = new_mark()
        script = Path(self._folder.name, "script.py")
        script.write_text(text, encoding="utf-8")
        self._process = subprocess.Popen(
            [driven.python, str(script)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            cwd=self._folder.name,
            env={**environment(driven.name, driven.path), MARK: self._mark, "TMPDIR": self._folder.name},
            start_new_session=True,
        )
        _limit(self._process.pid)

    def played(self) -> PlayedScript:
        """Wait for its end."""
        try:
            status = self._process.wait(RUNNING_S)
        except subprocess.TimeoutExpired:
            status = -signal.SIGALRM
        return PlayedScript(status, _text_of(self._output), _text_of(self._errors))

    def close(self) -> None:
        """End it, and all that it has started."""
        with interrupts_deferred():
            end_session(self._process.pid)
            self._process.kill()
            self._process.wait()
            end_marked(self._mark, self._errors.fileno())
            self._output.close()
            self._errors.close()
            self._folder.cleanup()


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _limit(pid: int) -> None:
    import resource  # on Unix alone

    for kind, most in ((resource.RLIMIT_FSIZE, MAX_OUTPUT), (resource.RLIMIT_DATA, MAX_DATA)):
        with suppress(OSError, AttributeError):  # it has ended; prlimit is Linux's
            resource.prlimit(pid, kind, (most, most))
