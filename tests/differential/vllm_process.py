"""A running vLLM to compare with, in a process of the interpreter that the environment names."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

VARIABLE = "LABENGINE_VLLM_PYTHON"
"""Environment variable that names the interpreter of an environment with vLLM."""

VERSION = "0.32"
"""The release that the edition vllm is named for."""

TESTS = Path(__file__).resolve().parent.parent


class VllmError(Exception):
    """vLLM could not be started, is another release, or raised on a workload."""


class VllmProcess:
    """Answers one workload at a time; a context manager. versions: accepted releases, without the patch level."""

    def __init__(self, python: str, versions: Sequence[str] = (VERSION,)) -> None:
        command = [python, "-m", "differential.vllm_upstream"]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(command, cwd=TESTS, stdin=pipe, stdout=pipe, text=True)
        except OSError as error:
            raise VllmError(f"{VARIABLE} must name a Python interpreter; {python} does not start: {error}") from error
        self.version = str(self._read()["vllm"])
        if not self.version.startswith(tuple(f"{version}." for version in versions)):
            self.close()
            wanted = " or ".join(versions)
            raise VllmError(f"{VARIABLE} must name an interpreter with vLLM {wanted}; {python} has {self.version}")

    def run_ops(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """What vLLM's KVCacheManager gives and holds after each op."""
        return self._ask({"ops": workload})

    def run_scheduler(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """What vLLM's Scheduler holds after each step."""
        return self._ask({"scheduler": workload})

    def run_mixed(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """What vLLM's schedulers hold after each step, or after each plan and each booking."""
        return self._ask({"mixed": workload})

    def run_tapped(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """The tap's messages while vLLM's Scheduler runs, and vLLM's own state after each update."""
        return self._ask({"tap": workload})

    def run_kv_events(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """What vLLM's Scheduler has cached at each batch of KV events that it publishes."""
        return self._ask({"kv_events": workload})

    def run_traffic(self, workload: dict[str, Any]) -> dict[str, Any]:
        """What each request of vLLM's Scheduler found and computed, and the totals: see vllm_upstream_traffic."""
        (found,) = self._ask({"traffic": workload})
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def __enter__(self) -> VllmProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, question: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise VllmError(answer["error"])
        results: list[dict[str, Any]] = answer["results"]
        return results

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise VllmError(f"vLLM ended with status {self._process.wait()}; its last words are on stderr")
        answer: dict[str, Any] = json.loads(line)
        return answer


def named_interpreter() -> str | None:
    """The interpreter that the environment names; None when it names none."""
    return os.environ.get(VARIABLE) or None
