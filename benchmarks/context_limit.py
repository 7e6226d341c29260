"""The decode of one request at long contexts, beside what reading its weights and KV takes at the machine's bandwidth.

    python benchmarks/context_limit.py [--contexts 128 2048 8000] [--dtype bfloat16] [--rounds 20]

A virtual machine's bandwidth changes within seconds, so readings of memory and steps take turns in one process. Each
context's median step is told beside the median reading, and its fastest step beside the fastest reading of all.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(1, str(Path(__file__).resolve().parent / "engine"))

from floors import Machine, ModelShape, step_seconds
from limits import NUM_BYTES, STREAMS, Limits
from machine import facts, headline, listening_for_noise

from labengine import Lab, model_path

STEPS = 8
"""Per context and round."""


def decoding(context: int, selected: argparse.Namespace) -> Lab:
    """A lab with one request that has `context` tokens behind it, and steps to come."""
    lab = Lab(
        "smollm2", dtype=selected.dtype, num_blocks=-(-8192 // 16), max_num_seqs=1, max_num_batched_tokens=8192,
        record=False, check=False,
    )  # fmt: skip
    token_ids = [300 + place * 31 % 30_000 for place in range(context)]
    lab.add(token_ids=token_ids, max_tokens=selected.rounds * STEPS + 2, ignore_eos=True)
    while not lab.step().sampled:
        pass
    return lab


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 2048, 8000])
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    selected = parser.parse_args()
    limits, shape = Limits(selected.threads), ModelShape.of(model_path("smollm2"))
    labs = {context: decoding(context, selected) for context in selected.contexts}
    readings: list[float] = []
    steps: dict[int, list[float]] = {context: [] for context in labs}
    with listening_for_noise() as noise:
        for _ in range(selected.rounds):
            readings.append(min(seconds(lambda: limits.read(streams)) for streams in STREAMS))  # noqa: B023
            for context, lab in labs.items():
                steps[context] += [seconds(lab.step) for _ in range(STEPS)]
    print(f"{headline(facts(selected.threads))}; smollm2, {selected.dtype}")
    print(f"reading: {NUM_BYTES / median(readings) / 1e9:.1f} GB/s, {NUM_BYTES / min(readings) / 1e9:.1f} at best")
    for context, taken in steps.items():
        said = []
        for pick in (median, min):
            machine = Machine(NUM_BYTES / pick(readings), float("inf"), 4 if selected.dtype == "float32" else 2)
            limit = step_seconds(shape, machine, [(1, context + selected.rounds * STEPS // 2)])
            said.append(f"{pick(taken) * 1e3:6.2f} ms, {pick(taken) / limit:.2f} times the limit")
        print(f"context {context:>5}: median {said[0]}; at best {said[1]}")
    if noise.share is not None:
        print(f"others took {noise.share:.0%} of the cores meanwhile")


if __name__ == "__main__":
    main()
