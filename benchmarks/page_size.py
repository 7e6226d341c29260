"""Compare a decode step with blocks of 1 token, as SGLang has them by default, with one with blocks of 16.

    python benchmarks/page_size.py [--edition labengine-radix] [--model smollm2] [--rounds 12]

Two labs decode the same 16 requests with 2,000 tokens of context each. They take turns of a dozen steps; a ratio is
1 / 16 within a turn. "simulated" measures the bookkeeping alone.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from labengine import Lab

SIZES = (1, 16)
BATCH, CONTEXT, CHUNK, SKIPPED = 16, 2_000, 12, 2


def decoding(edition: str, model: str, block_size: int, num_steps: int) -> Lab:
    """Return a lab whose requests all decode."""
    lab = Lab(
        model,
        edition=edition,
        dtype=None if model == "simulated" else "bfloat16",
        block_size=block_size,
        num_blocks=BATCH * (-(-(CONTEXT + num_steps) // block_size) + 1),
        max_num_seqs=BATCH,
        record=False,
        check=False,
    )
    rng = Random(0)
    for _ in range(BATCH):
        prompt = [rng.randrange(300, 40_000) for _ in range(CONTEXT)]
        lab.add(token_ids=prompt, max_tokens=num_steps, ignore_eos=True)
    while len(lab.step().sampled) < BATCH:
        pass
    return lab


def turn(lab: Lab) -> float:
    """Return the seconds of a step: the median of CHUNK steps, without the first SKIPPED."""
    seconds = []
    for _ in range(CHUNK):
        started = perf_counter()
        lab.step()
        seconds.append(perf_counter() - started)
    return median(seconds[SKIPPED:])


def main() -> None:
    """Measure in turns, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edition", default="labengine-radix")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=12)
    selected = parser.parse_args()
    num_steps = CHUNK * (selected.rounds + 1) + BATCH * 2
    with ExitStack() as stack:
        labs: list[Any] = []
        for size in SIZES:
            lab = stack.enter_context(decoding(selected.edition, selected.model, size, num_steps))
            stack.enter_context(lab.session.runs.running())
            labs.append(lab)
        rounds = [[turn(lab) for lab in labs] for _ in range(selected.rounds)]
    ratios = sorted(fine / coarse for fine, coarse in rounds)
    quarter = len(ratios) // 4
    fine, coarse = (median(column) * 1e3 for column in zip(*rounds, strict=True))
    print(f"{selected.model}, {selected.edition}: blocks of 1: {fine:.2f} ms; of 16: {coarse:.2f} ms; ratio ", end="")
    print(f"{median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})")


if __name__ == "__main__":
    main()
