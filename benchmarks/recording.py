"""What recording costs in a real decode step: two labs on one model, stepped in turn, one recording and one not.

    python benchmarks/recording.py [--model smollm2] [--steps 60] [--batch 1 16]

Prints the median step of each and the ratio of the medians; the labs take turns going first, so that a noisy machine
hits both alike. The noise is larger than the cost, so the same pair is also run on the simulated model, where a step is
the bookkeeping alone: the difference there, as a share of the real step, is the finer figure.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import torch

from labengine import Lab


def decode_steps(model: str, batch: int, num_steps: int) -> tuple[list[float], list[float]]:
    """Seconds per decode step, (silent, recorded)."""
    labs = [Lab(model, num_blocks=1024, max_num_seqs=batch, record=record) for record in (False, True)]
    for lab in labs:
        for request in range(batch):
            lab.add(f"Request {request}: " + "once upon a time there was a machine. " * 12, max_tokens=num_steps + 8)
        for _ in range(4):
            lab.step()
    seconds: tuple[list[float], list[float]] = ([], [])
    for round_number in range(num_steps):
        for which in (0, 1) if round_number % 2 else (1, 0):
            started = perf_counter()
            labs[which].step()
            seconds[which].append(perf_counter() - started)
    for lab in labs:
        lab.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    selected = parser.parse_args()
    print(f"decode steps of {selected.model}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for batch in selected.batch:
        silent, recorded = (median(seconds) for seconds in decode_steps(selected.model, batch, selected.steps))
        bare, noted = (median(seconds) for seconds in decode_steps("simulated", batch, 10 * selected.steps))
        print(f"batch {batch:>3}: silent {silent * 1e3:.2f} ms, recorded {recorded * 1e3:.2f} ms", end=", ")
        print(f"ratio {recorded / silent:.4f}")
        print(f"           bookkeeping {bare * 1e6:.0f} us, with recording {noted * 1e6:.0f} us", end=": ")
        print(f"recording adds {(noted - bare) / silent:.2%} of a real step")


if __name__ == "__main__":
    main()
