"""Prefill of SmolLM2 with each set of instructions, beside transformers with its libraries held to the same set.

    python benchmarks/instruction_sets.py [--sets x86-64-v3 native] [--rounds 3] [--prompts 16]

Each engine runs in a process of its own, which computes a batch of prompts of 128 tokens on one thread, several times;
the engines take turns. The figures are prompt tokens a second of processor time, the best of each process: other
programs disturb processor time less than time. Printed are medians of the rounds, and lowest to highest.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import process_time

from machine import facts, headline

PROMPT = 128
MASKS = {
    "x86-64-v3": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "x86-64-v4": {"MKL_ENABLE_INSTRUCTIONS": "AVX512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
}
"""By set, the settings that hold torch's libraries to it."""
ENGINES = (("labengine", "float32"), ("labengine", "bfloat16"), ("transformers", "float32"))
"""With dtypes. transformers in bf16 is several times slower than in fp32 where there is no product of bf16."""


def main() -> None:
    """Ask each engine in each dtype with each set, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["x86-64-v3", "native"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print(WORKERS[asked.worker[0]](asked.worker[1], asked.prompts))
        return
    print(headline(facts(1)))
    cases = [(isa, engine, dtype) for isa in asked.sets for engine, dtype in ENGINES]
    rates: dict[tuple[str, str, str], list[float]] = {case: [] for case in cases}
    for _ in range(asked.rounds):
        for case in cases:
            rates[case].append(_asked(*case, asked.prompts))
    for (isa, engine, dtype), found in rates.items():
        spread = f"({min(found):.0f} to {max(found):.0f})"
        print(f"{isa:15} {engine:13} {dtype:9} {median(found):6.0f} tok/s {spread}")


def _asked(isa: str, engine: str, dtype: str, num_prompts: int) -> float:
    environment = {**os.environ, "LABENGINE_CPU": isa, "OMP_NUM_THREADS": "1", **MASKS.get(isa, {})}
    command = [sys.executable, __file__, "--worker", engine, dtype, "--prompts", str(num_prompts)]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return float(said.split()[-1])


def _rate_of(prefill: Callable[[list[list[int]]], object], num_prompts: int) -> float:
    draw = random.Random(0)
    seconds = []
    for _ in range(4 if num_prompts > 4 else 12):
        prompts = [[draw.randrange(10, 40_000) for _ in range(PROMPT)] for _ in range(num_prompts)]
        before = process_time()
        prefill(prompts)
        seconds.append(process_time() - before)
    return num_prompts * PROMPT / min(seconds)


def _ours(dtype: str, num_prompts: int) -> float:
    import torch

    import labengine

    torch.set_num_threads(1)
    lab = labengine.Lab("smollm2", dtype=dtype, num_blocks=num_prompts * 9 + 1, record=False, check=False)

    def prefill(prompts: list[list[int]]) -> None:
        for prompt in prompts:
            lab.add(token_ids=prompt, max_tokens=1)
        lab.run()

    return _rate_of(prefill, num_prompts)


def _theirs(dtype: str, num_prompts: int) -> float:
    import torch
    from transformers import AutoModelForCausalLM

    from labengine.engine.sources import model_path

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_path("smollm2"), dtype=getattr(torch, dtype)).eval()

    def prefill(prompts: list[list[int]]) -> None:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)

    return _rate_of(prefill, num_prompts)


WORKERS = {"labengine": _ours, "transformers": _theirs}

if __name__ == "__main__":
    main()
