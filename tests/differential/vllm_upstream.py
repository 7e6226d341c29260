"""Serves vLLM's own classes to the tests, under the interpreter of an environment that has vLLM (and not labengine).

    cd tests && PYTHON_WITH_VLLM -m differential.vllm_upstream

One JSON line in, one out: first {"vllm": version}, then for {"ops": workload}, {"scheduler": workload},
{"mixed": workload}, {"tap": workload}, {"kv_events": workload} or {"traffic": workload} either {"results": [...]} or
{"error": text}.
Importing vLLM takes some seconds, so one process serves many workloads.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

RUNS: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {}


def main() -> None:
    """Answer until stdin ends; whatever vLLM prints goes to stderr."""
    answers = _own_stdout()
    _load()
    import vllm

    _say(answers, {"vllm": vllm.__version__})
    for line in sys.stdin:
        _say(answers, _answer(json.loads(line)))


def _own_stdout() -> TextIO:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _load() -> None:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from differential.vllm_upstream_kv_events import run_kv_events
    from differential.vllm_upstream_mixed import run_mixed
    from differential.vllm_upstream_ops import run_ops
    from differential.vllm_upstream_scheduler import run_scheduler
    from differential.vllm_upstream_tap import run_tapped
    from differential.vllm_upstream_traffic import run_traffic

    logging.getLogger("vllm").setLevel(logging.ERROR)
    RUNS.update(ops=run_ops, scheduler=run_scheduler, mixed=run_mixed, tap=run_tapped, kv_events=run_kv_events)
    RUNS.update(traffic=run_traffic)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    ((kind, workload),) = question.items()
    try:
        return {"results": RUNS[kind](workload)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer, separators=(",", ":")) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
