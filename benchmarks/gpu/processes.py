"""Engines in processes of their own, kept alive, one on the GPU at a time if it does not hold two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FA3 = HERE / "fa3"


class EngineError(RuntimeError):
    """An engine that did not start or did not answer; the message ends with what it said last."""


@dataclass(frozen=True)
class Entry:
    """What takes part: a name for the table, an engine of engines.py, its options, its interpreter."""

    name: str
    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable


class EngineProcess:
    """One running engine. What it prints goes into `log`."""

    def __init__(self, entry: Entry, model_dir: Path, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("w") as said:
            self._process = subprocess.Popen(
                [entry.python, str(HERE / "engines.py"), entry.engine, str(model_dir), json.dumps(entry.options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env={**os.environ, **environment},
            )
        self.hello = self._answer()

    def run(self) -> dict[str, Any]:
        """The workload once: seconds and num_tokens."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer tells why
        return self._answer()

    def end(self) -> None:
        """Wait for it to leave the GPU."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            last = self._log.read_text(errors="replace").strip().splitlines()[-12:]
            raise EngineError("\n".join(["it ended; its last words:", *last]))
        answer: dict[str, Any] = json.loads(line)
        return answer


def environment_for(fa3_library: str | None) -> dict[str, str]:
    """Quiet, offline, one clear GPU; with a library, FA3 and FA2's names served by it."""
    settings = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if fa3_library is not None:
        settings["LABENGINE_FA3_LIBRARY"] = str(Path(fa3_library).resolve())
        settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FA3), os.environ.get("PYTHONPATH")]))
    return settings
