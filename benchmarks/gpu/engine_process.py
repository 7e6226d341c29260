"""An engine in a separate process, with a time limit."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages import end_group, start_group

SCRIPT = Path(__file__).with_name("engines.py")
LEAVING_SECONDS = 15
"""Seconds after which an engine that still uses the GPU is killed."""


class EngineError(RuntimeError):
    """Raised for an engine that did not start or answer; its last output follows in further lines."""


@dataclass(frozen=True)
class Entry:
    """A participating engine: its name in the table, its class in engines.py, its options and interpreter."""

    name: str
    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable


class EngineProcess:
    """One running engine, the head of a process group. Its output goes into `log`; hello: its first answer.

    limit: seconds for all its work, after which it is killed with its children. Raises EngineError.
    """

    def __init__(self, entry: Entry, model_dir: Path, log: Path, environment: Mapping[str, str], limit: float) -> None:
        self._log, self._limit, self._end = log, limit, time.monotonic() + limit
        self._answers = b""
        command = [entry.python, str(SCRIPT), entry.engine, str(model_dir), json.dumps(entry.options)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with log.open("wb") as output:
            try:
                self._process = start_group(command, environment, output, **pipes)
            except OSError as error:
                raise EngineError(f"it failed to start: {error}") from error
        try:
            self.hello = self._answer()
        except BaseException:
            self.kill()
            raise

    def run(self) -> dict[str, Any]:
        """Run the workload once; return seconds and num_tokens."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer reports why
        return self._answer()

    def leave(self) -> None:
        """Ask the engine to leave the GPU, and wait a while."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(max(0, min(LEAVING_SECONDS, self._end - time.monotonic())))

    def kill(self) -> None:
        """Kill the remaining processes of its group."""
        end_group(self._process)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while b"\n" not in self._answers:
            if not select.select([output], [], [], max(0, self._end - time.monotonic()))[0]:
                raise EngineError(self._with_last_words(f"no answer within {self._limit:.0f} s"))
            arrived = os.read(output, 2**16)
            if not arrived:
                raise EngineError(self._with_last_words("it ended"))
            self._answers += arrived
        line, _, self._answers = self._answers.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _with_last_words(self, what: str) -> str:
        self.kill()
        last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
        return "\n".join([what, *last])
