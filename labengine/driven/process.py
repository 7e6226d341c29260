"""Another engine's process, which receives lines and answers them in order."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.driven.drivable import ENGINES
from labengine.isolation.confinement import end_session
from labengine.record.wording import readable
from labengine.system.closing import Closing

DRIVER = Path(__file__).resolve().parent / "inside" / "driver.py"

PLUGIN = DRIVER.parents[3] / "vllm_tap"
"""The plugin in this clone; elsewhere it is installed beside vLLM."""

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
"""Defaults of the engine's environment, since there is no model and no device."""

SILENCE_S = 60.0
"""Seconds without an answer after which the engine counts as hanging where no signal reaches it."""
STARTING_S = 300.0
"""Seconds allowed for importing the engine; vLLM takes ten on an idle machine."""


class EngineLostError(Exception):
    """Raised if the engine's process ended or does not answer; the message says which, with its last output."""

    def __init__(self, message: str, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent


@dataclass(frozen=True)
class DrivenEngine:
    """An engine to be driven.

    name: a key of ENGINES; python: its interpreter; patch: a file executed there first; checkout: the folder of an
    engine that is not installed.
    """

    name: str
    python: str
    patch: str | None = None
    checkout: str | None = None


class EngineProcess(Closing):
    """One process of a driven engine. A context manager."""

    def __init__(self, driven: DrivenEngine) -> None:
        """Raises ConfigError if the engine cannot be started there."""
        self._driven = driven
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._buffer = bytearray()
        self._sent: deque[int] = deque()
        """The numbers of the unanswered lines, the oldest first."""
        self._num_sent = 0
        command = [driven.python, str(DRIVER), driven.name, *([driven.patch] if driven.patch else [])]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._log, env=_environment(driven)
            )
        except OSError as error:
            raise ConfigError(
                f"{driven.python} does not start ({error.strerror}): name the engine's Python with --python"
            ) from None
        assert self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        try:
            first = self._read(STARTING_S)
        except EngineLostError as error:
            self.close()
            raise ConfigError(f"{driven.name} cannot be driven with {driven.python}: {error}") from None
        self.engine = readable(str(first["engine"]))
        """The engine's name and release."""
        self.source = str(first["source"])
        """The text of the file that makes and drives it."""

    def ask(self, line: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a line; return its answer. Raises EngineLostError, also after these seconds of silence."""
        self.send(line)
        return self.receive(seconds)

    def send(self, workload: dict[str, Any]) -> None:
        """Send a line. Raises EngineLostError."""
        self._num_sent += 1
        self._sent.append(self._num_sent)
        line = json.dumps({**workload, "number": self._num_sent}, separators=(",", ":")).encode() + b"\n"
        assert self._process.stdin
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise EngineLostError(self._last_words("ended")) from None

    def receive(self, seconds: float = SILENCE_S) -> dict[str, Any]:
        """Return the answer to the oldest unanswered line. Raises EngineLostError.

        seconds: of silence, after which the engine counts as lost.
        """
        answer = self._read(seconds)
        if answer.get("number") != self._sent.popleft():  # from a copy of the process, or printed by the engine
            raise EngineLostError("its driver answered a different line")
        return answer

    def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout
        while (end := self._buffer.find(b"\n")) < 0:
            if not self._selector.select(seconds):
                raise EngineLostError(self._last_words(f"was silent for {seconds:.0f} seconds"), is_silent=True)
            data = os.read(self._process.stdout.fileno(), 1 << 18)
            if not data:
                raise EngineLostError(self._last_words("ended"))
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineLostError("its driver's answer is not a JSON object")
        return answer

    def _last_words(self, what: str) -> str:
        status = self._status()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        words = f"; its last output: {readable(lines[-1], 300)}" if lines else ""
        return f"its process {what}" + (f" with status {status}" if what == "ended" else "") + words

    def _status(self) -> int:
        with suppress(subprocess.TimeoutExpired):  # it has closed its output, and is about to end
            return self._process.wait(1)
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """End the process and its children. Twice is harmless."""
        end_session(self._process.pid)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unflushed data has no reader
                    pipe.close()
        self._log.close()


def _environment(driven: DrivenEngine) -> dict[str, str]:
    """Return this process's environment without variables for its Python, and without a user's tap."""
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LABENGINE_TAP")
    found = QUIET | {name: value for name, value in os.environ.items() if name not in own}
    paths = [str(PLUGIN)] if PLUGIN.is_dir() else []
    if driven.checkout is not None:
        folder, engine = str(Path(driven.checkout).resolve()), ENGINES[driven.name]
        found |= {engine.folder: folder} if engine.folder else {}
        paths = [folder, *paths] if engine.package else paths
    return {**found, "PYTHONPATH": os.pathsep.join(paths)} if paths else found
