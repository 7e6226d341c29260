"""Engines in separate processes, kept alive between orders."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from time import sleep
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
MODULES = {"watched": "ours"}
"""Engines that use another engine's module with a different setting."""

PAUSE_SECONDS = 0.3
"""Seconds between two orders, so that no threads still spin while another engine is timed."""


class PeerError(RuntimeError):
    """Raised for an engine that did not start, or died; the message ends with its last output."""


class Peer:
    """One engine, which sleeps between orders."""

    def __init__(self, python: str, engine: str, options: dict[str, Any]) -> None:
        self.engine = engine
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        threads = str(options["threads"])
        self._process = subprocess.Popen(
            [python, str(WORKER), MODULES.get(engine, engine), json.dumps(options | {"engine": engine})],
            env={**os.environ, "OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.name = engine
        self.about: dict[str, str] = {}
        self.noises: list[float] = []

    def await_start(self) -> None:
        """Wait until it has loaded. Raises PeerError if it fails."""
        hello = self._answer()
        self.name, self.about = hello["name"], hello["about"]

    def generate(self, prompts: list[list[int]], num_tokens: int) -> dict[str, Any]:
        """Return seconds, cached prompt tokens (None: not reported) and first output. Raises PeerError if it died."""
        sleep(PAUSE_SECONDS)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"prompts": prompts, "num_tokens": num_tokens}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._error() from None
        answer = self._answer()
        if answer["noise"] is not None:
            self.noises.append(answer["noise"])
        return answer

    def seconds(self, prompts: list[list[int]], num_tokens: int) -> float:
        """Return the seconds that generating took."""
        return float(self.generate(prompts, num_tokens)["seconds"])

    def close(self) -> None:
        """End the process. A second call has no effect."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._error()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _error(self) -> PeerError:
        self._process.wait()
        self._log.seek(0)
        return PeerError(f"{self.engine} ended by itself:\n" + "".join(self._log.readlines()[-15:]))


def started(pythons: dict[str, str], options: dict[str, Any], warm_up: list[tuple[list[list[int]], int]]) -> list[Peer]:
    """Load and warm up all engines, one by one. Raises PeerError, and then leaves none running."""
    peers: list[Peer] = []
    try:
        for engine, python in pythons.items():
            peers.append(Peer(python, engine, options))
            peers[-1].await_start()
            for prompts, num_tokens in warm_up:
                peers[-1].generate(prompts, num_tokens)
            peers[-1].noises.clear()
            print(f"{peers[-1].name}: loaded and warm", flush=True)
    except BaseException:
        for peer in peers:
            peer.close()
        raise
    return peers
