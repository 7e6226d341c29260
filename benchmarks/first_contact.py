"""From `import labengine` to the first token of a first prompt, each time in a new process, with warm caches.

    python benchmarks/first_contact.py [--rounds 7] [--against CHECKOUT] [--out FILE]

SmolLM2, greedy, one prompt of eight words. Beside it: transformers, from its import to the first token of generate(),
and, with --against, another checkout of labengine. All take turns; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from machine import facts, headline

ROOT = Path(__file__).parent.parent
PROMPT = "The three primary colours are red, yellow and"

OURS = f"""
from time import perf_counter
began = perf_counter()
import labengine
imported = perf_counter()
lab = labengine.Lab("smollm2")
made = perf_counter()
lab.add({PROMPT!r}, max_tokens=1)
lab.step()
print(round(imported - began, 3), round(made - imported, 3), round(perf_counter() - made, 3))
"""

TRANSFORMERS = f"""
from time import perf_counter
began = perf_counter()
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
imported = perf_counter()
tokenizer = AutoTokenizer.from_pretrained(PATH)
model = AutoModelForCausalLM.from_pretrained(PATH, dtype=torch.float32)
made = perf_counter()
model.generate(**tokenizer({PROMPT!r}, return_tensors="pt"), max_new_tokens=1, do_sample=False)
print(round(imported - began, 3), round(made - imported, 3), round(perf_counter() - made, 3))
"""


def seconds(code: str, checkout: Path) -> tuple[float, ...]:
    """Return seconds of import, construction and first step in a new process that imports from the checkout."""
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True)
    return tuple(map(float, done.stdout.split()[-3:]))


def main() -> None:
    """Time all in turns; print medians, and ratios to ours."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, help="another checkout of labengine")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    from labengine import model_path

    runs = {
        "labengine": (OURS, ROOT),
        "transformers": (TRANSFORMERS.replace("PATH", repr(str(model_path("smollm2")))), ROOT),
    }
    if arguments.against:
        runs["labengine, the other checkout"] = (OURS, arguments.against)
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
    for code, checkout in runs.values():
        seconds(code, checkout)  # caches become warm
    for _ in range(arguments.rounds):
        for name, (code, checkout) in runs.items():
            times[name].append(seconds(code, checkout))
    about = facts(os.cpu_count() or 1)
    print(headline(about))
    print("| | import, s | construction, s | first step, s | in all, s | to labengine |\n|---|---|---|---|---|---|")
    rows = {}
    for name, taken in times.items():
        parts = [median(part) for part in zip(*taken, strict=True)]
        ratio = median(sum(one) / sum(ours) for one, ours in zip(taken, times["labengine"], strict=True))
        rows[name] = [*parts, median(map(sum, taken)), ratio]
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in rows[name]) + " |")
    if arguments.out:
        arguments.out.write_text(json.dumps({"facts": about, "rows": rows}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
