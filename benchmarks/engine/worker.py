"""One engine in a separate process, which gets prompts and reports how long generating took.

    python worker.py ENGINE OPTIONS

ENGINE names a module ENGINE_engine.py beside this file, OPTIONS are JSON (options() in __main__.py). Orders come in and
answers go out as lines of JSON; the engine's own output goes to stderr. Use an interpreter that has the engine.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from machine import listening_for_noise

Answer = dict[str, Any]


def generated(engine: Any, prompts: list[list[int]], num_tokens: int) -> Answer:
    """Return the seconds from the call to the last token, and the tokens. Raises RuntimeError if any are missing."""
    with listening_for_noise() as noise:
        started = perf_counter()
        outputs = engine.generate(prompts, num_tokens)
        seconds = perf_counter() - started
    lengths = {len(tokens) for tokens in outputs}
    if lengths != {num_tokens} or len(outputs) != len(prompts):
        raise RuntimeError(f"asked for {num_tokens} tokens of {len(prompts)} prompts, got {lengths} of {len(outputs)}")
    return {"seconds": seconds, "noise": noise.share, "cached": engine.num_cached_tokens, "first": outputs[0]}


def main() -> None:
    """Answer orders until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    engine = importlib.import_module(f"{sys.argv[1]}_engine").Engine(json.loads(sys.argv[2]))
    report({"name": engine.name, "about": engine.about})
    for line in sys.stdin:
        order = json.loads(line)
        report(generated(engine, order["prompts"], order["num_tokens"]))


if __name__ == "__main__":
    main()
