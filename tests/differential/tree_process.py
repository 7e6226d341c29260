"""SGLang and mini-sglang to compare with, in a process of the interpreter that the environment names.

LABENGINE_SGLANG names the folder of SGLang 0.5.23's unpacked wheel, LABENGINE_MINI_SGLANG a clone of mini-sglang at
20fcd7f, and LABENGINE_SGLANG_PYTHON an interpreter with torch, msgpack and, for SGLang, orjson and what vLLM needs;
without it, this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent

UPSTREAM = {
    "sglang": ("LABENGINE_SGLANG", "sglang_upstream", "SGLang 0.5.23"),
    "mini-sglang": ("LABENGINE_MINI_SGLANG", "minisgl_upstream", "mini-sglang 20fcd7f"),
    "mini-sglang+142": ("LABENGINE_MINI_SGLANG", "minisgl_upstream", "mini-sglang 20fcd7f"),
}
"""Per edition: the variable that names its engine's folder, the module that serves it, and the version."""

EDITIONS = tuple(UPSTREAM)


def named_folder(edition: str) -> str | None:
    """The engine's folder that the environment names; None when it names none."""
    return os.environ.get(UPSTREAM[edition][0]) or None


def python() -> str:
    """The interpreter that has what the engines import."""
    return os.environ.get("LABENGINE_SGLANG_PYTHON") or sys.executable


class TreeProcess:
    """Answers one workload at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, workload: dict[str, Any]) -> list[dict[str, Any]]:
        """What upstream holds after each iteration of its loop."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(workload), file=self._process.stdin, flush=True)
        rows: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return rows


@contextmanager
def upstream_of(edition: str, folder: str) -> Iterator[TreeProcess]:
    """Start the engine that an edition is named for."""
    variable, module, _ = UPSTREAM[edition]
    command = [python(), "-m", f"differential.{module}", edition]
    environment, pipe = {**os.environ, variable: str(Path(folder).resolve())}, subprocess.PIPE
    with subprocess.Popen(command, cwd=TESTS, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield TreeProcess(process)
