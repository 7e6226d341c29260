"""Another engine's process, which receives lines and answers them in order."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from labengine.config import ConfigError
from labengine.driven.contained import ContainedProcess
from labengine.driven.drivable import drivable, is_driver_file, refuse_folder
from labengine.engine.interrupts import ROUND_S, interrupts_allowed, interrupts_deferred
from labengine.record.wording import readable
from labengine.system.closing import Closing

DRIVER = Path(__file__).resolve().parent / "inside" / "driver.py"
STAND_IN = DRIVER.with_name("stand_in.py")

PLUGIN = DRIVER.parents[3] / "vllm_tap"
"""The plugin in this clone; elsewhere it is installed beside vLLM."""

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
"""Defaults of the engine's environment, since there is no model and no device; a process with threads is not copied."""

SILENCE_S = 60.0
"""Seconds without an answer after which the engine counts as hanging where no signal reaches it."""
MAX_ANSWER = 2**28
"""Most bytes of an answer."""
LAST_BYTES = 10_000
"""Bytes of its output, from the end, that may hold the last line."""
STARTING_S = 300.0
"""Seconds allowed for importing the engine; vLLM takes ten on an idle machine."""
DYING_S = 5.0
"""Seconds allowed to a process that has closed its output to end."""


class EngineLostError(Exception):
    """Raised if the engine's process ended or does not answer; the message says which, with its last output.

    is_silent: it did not answer in time. is_endless: it computed too long, outside of Python, and was ended.
    """

    def __init__(self, message: str, *, is_silent: bool = False, is_endless: bool = False) -> None:
        super().__init__(message)
        self.is_silent, self.is_endless = is_silent, is_endless


@dataclass(frozen=True)
class DrivenEngine:
    """An engine to be driven.

    name: a key of ENGINES, or a driver file; python: its interpreter; patch: a file executed there first; checkout: the
    folder of an engine that is not installed. Raises ConfigError for a folder without the engine.
    """

    name: str
    python: str
    patch: str | None = None
    checkout: str | None = None

    def __post_init__(self) -> None:
        refuse_folder(self.name, self.checkout)

    @property
    def place(self) -> str:
        """Where it is: its folder, or else its interpreter."""
        return self.checkout or self.python


class EngineProcess(Closing):
    """One process of a driven engine. A context manager."""

    def __init__(self, driven: DrivenEngine, channel: int | None = None) -> None:
        """channel: where a copy is asked for; see Imported. Raises ConfigError if the engine cannot be started."""
        self._buffer = bytearray()
        self._sent: deque[int] = deque()
        """The numbers of the unanswered lines, the oldest first."""
        self._num_sent = 0
        self._process = ContainedProcess()
        try:
            with interrupts_deferred():
                _start(self._process, driven, channel)
                self._lines, self._answers = self._process.pipes
                os.set_blocking(self._lines, False)
                first = self._read(STARTING_S)
        except EngineLostError as error:
            self.close()
            raise ConfigError(f"{driven.name} cannot be driven with {driven.python}: {error}") from None
        except BaseException:
            self.close()
            raise
        self.engine = readable(str(first["engine"]))
        """The engine's name and release."""
        self.source = str(first["source"])
        """The text of the file that makes and drives it."""

    @property
    def has_ended(self) -> bool:
        """True if the process has ended by itself, or was closed."""
        return self._process.has_ended

    def ask(self, line: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a line; return its answer. Raises EngineLostError, also after these seconds of silence."""
        self.send(line)
        return self.receive(seconds)

    def send(self, workload: dict[str, Any]) -> None:
        """Send a line. Raises EngineLostError."""
        self._num_sent += 1
        self._sent.append(self._num_sent)
        line = json.dumps({**workload, "number": self._num_sent}, separators=(",", ":")).encode() + b"\n"
        while line:
            self._wait_for(self._lines, selectors.EVENT_WRITE, SILENCE_S)
            try:
                line = line[os.write(self._lines, line) :]
            except OSError:
                raise self._lost() from None

    def receive(self, seconds: float = SILENCE_S) -> dict[str, Any]:
        """Return the answer to the oldest unanswered line. Raises EngineLostError.

        seconds: of silence, after which the engine counts as lost.
        """
        answer = self._read(seconds)
        if answer.get("number") != self._sent.popleft():  # from a copy of the process, or printed by the engine
            raise EngineLostError("its driver answered a different line")
        return answer

    def _read(self, seconds: float) -> dict[str, Any]:
        num_searched = 0
        while (end := self._buffer.find(b"\n", num_searched)) < 0:
            num_searched = len(self._buffer)
            if num_searched > MAX_ANSWER:
                raise EngineLostError("its driver's answer does not end")
            self._wait_for(self._answers, selectors.EVENT_READ, seconds)
            if not (data := os.read(self._answers, 1 << 18)):
                raise self._lost()
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise EngineLostError("its driver's answer is not a JSON object")
        return answer

    def _wait_for(self, pipe: int, event: int, seconds: float) -> None:
        """Wait until a pipe is ready. Raises EngineLostError after these seconds.

        Waits in rounds: Python handles a signal that arrives just before a system call only after that call.
        """
        last = monotonic() + seconds
        with selectors.DefaultSelector() as selector, interrupts_allowed():
            selector.register(pipe, event)
            while not selector.select(max(0.0, min(ROUND_S, last - monotonic()))):
                if monotonic() >= last:
                    words = f"its process was silent for {seconds:.0f} seconds{self._last_words()}"
                    raise EngineLostError(words, is_silent=True)

    def _lost(self) -> EngineLostError:
        """Return the error of a process that has ended."""
        status = self._process.status(DYING_S)
        if status == -signal.SIGPROF:
            return EngineLostError("it computes without end, outside of Python", is_endless=True)
        return EngineLostError(f"its process ended with status {status}{self._last_words()}")

    def _last_words(self) -> str:
        """Return a clause with the last line that it has printed; empty without one. Ends the process."""
        self._process.status(DYING_S)
        log = self._process.log
        log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_BYTES))
        lines = log.read().decode(errors="replace").strip().splitlines()
        return f"; its last output: {readable(lines[-1], 300)}" if lines else ""

    def close(self) -> None:
        """End the process and its children. Twice is harmless."""
        self._process.close()


def _start(process: ContainedProcess, driven: DrivenEngine, channel: int | None) -> None:
    command = [driven.python, str(DRIVER), driven.name, *([driven.patch] if driven.patch else [])]
    if channel is not None:
        command = [driven.python, "-I", "-S", str(STAND_IN), str(channel), *command]
    try:
        process.start(
            command,
            environment(driven.name, driven.checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=() if channel is None else (channel,),
        )
    except OSError as error:
        raise ConfigError(
            f"{driven.python} does not start ({error.strerror}): name the engine's Python with --python"
        ) from None


def environment(engine: str, checkout: str | None) -> dict[str, str]:
    """Return this process's environment without variables for its Python, its test's name and a user's tap."""
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "LABENGINE_TAP")
    found = QUIET | {name: value for name, value in os.environ.items() if name not in own}
    paths = [str(PLUGIN)] if PLUGIN.is_dir() else []
    if is_driver_file(engine):  # it can import what is beside it
        paths = [str(Path(engine).resolve().parent), *paths]
    if checkout:
        folder, known = str(Path(checkout).resolve()), drivable(engine)
        found |= {known.folder: folder} if known.folder else {}
        paths = [folder, *paths] if known.package or is_driver_file(engine) else paths
    return {**found, "PYTHONPATH": os.pathsep.join(paths)} if paths else found
