"""Compare a decode step of this checkout with another checkout's, to see what a change costs users who do not use it.

    python benchmarks/step_against.py CHECKOUT [--batch 1 16 256] [--rounds 24] [--threads 2]

Two processes, one for each checkout, have equal labs on equal prompts. They take turns of a dozen steps; a ratio is
ours / theirs within a turn. "bookkeeping" is thread CPU time on the simulated model, "real" is seconds of SmolLM2 in
bf16. A column's rows show what recording and checks cost that checkout. The table has the quietest turns, and the
median of the turns' ratios with their middle half.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen
from time import perf_counter, thread_time
from typing import Any

OURS = Path(__file__).resolve().parent.parent
PROMPT, CHUNK, SKIPPED = 32, 12, 2
KINDS = {"silent": (False, False), "recorded": (True, False), "recorded and checked": (True, True)}
"""Lab's arguments record and check, by name."""
MODELS = {"bookkeeping": "simulated", "real": "smollm2"}


@contextmanager
def decoding(model: str, batch: int, num_steps: int, kind: str) -> Iterator[Any]:
    """Yield a lab whose requests all decode, as in a run."""
    from labengine import Lab  # from the checkout that `work` has put first

    record, check = KINDS[kind]
    blocks = batch * (-(-(PROMPT + num_steps + 8) // 16) + 1)
    dtype = None if model == "simulated" else "bfloat16"
    with (
        Lab(model, dtype=dtype, num_blocks=blocks, max_num_seqs=batch, record=record, check=check) as lab,
        lab.session.runs.running(),
    ):
        for request in range(batch):
            start = 300 + PROMPT * request
            lab.add(token_ids=range(start, start + PROMPT), max_tokens=num_steps + 8, ignore_eos=True)
        while len(lab.step().sampled) < batch:
            pass
        yield lab


def chunk_median(lab: Any, clock: Callable[[], float]) -> float:
    """Return the seconds of a step: the median of CHUNK steps, without the first SKIPPED."""
    seconds = []
    for _ in range(CHUNK):
        started = clock()
        lab.step()
        seconds.append(clock() - started)
    return median(seconds[SKIPPED:])


def work(checkout: str, threads: int) -> None:
    """Answer orders of `Checkout`: open labs, or take a turn with one of them."""
    sys.path[:0] = [checkout, f"{checkout}/widgets"]
    import torch

    torch.set_num_threads(threads)
    labs, clock = {}, perf_counter
    with ExitStack() as stack:
        for line in sys.stdin:
            asked = json.loads(line)
            if "kind" in asked:
                print(chunk_median(labs[asked["kind"]], clock), flush=True)
            else:
                stack.close()
                model, shape = MODELS[asked["figure"]], (asked["batch"], asked["num_steps"])
                clock = thread_time if model == "simulated" else perf_counter
                labs = {kind: stack.enter_context(decoding(model, *shape, kind)) for kind in KINDS}
                print("opened", flush=True)


class Checkout:
    """A process with the labs of a checkout."""

    def __init__(self, checkout: Path, threads: int) -> None:
        command = [sys.executable, __file__, str(checkout), "--threads", str(threads), "--work"]
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True)

    def ask(self, **asked: Any) -> str:
        """Return the answer's line."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process of a checkout has ended; its error is printed above")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def row(figure: str, batch: int, kind: str, ours: list[float], theirs: list[float]) -> str:
    """Return a row of the table."""
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    quarter = len(ratios) // 4
    quietest = f"{min(ours) * 1e6:,.0f} | {min(theirs) * 1e6:,.0f} | {min(ours) / min(theirs):.2f}"
    middle = f"{median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"
    return f"| {figure}, batch {batch}, {kind} | {quietest} | {middle} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    selected = parser.parse_args()
    if selected.work:
        work(str(selected.checkout), selected.threads)
        return
    ours, theirs = (Checkout(checkout, selected.threads) for checkout in (OURS, selected.checkout.resolve()))
    print("| a step | ours, us | theirs, us | quietest | median of ratios |\n|---|---:|---:|---:|---:|")
    for figure in MODELS:
        for batch in selected.batch:
            for side in (ours, theirs):
                side.ask(figure=figure, batch=batch, num_steps=(selected.rounds + 1) * CHUNK)
            for kind in KINDS:
                seconds: dict[Checkout, list[float]] = {ours: [], theirs: []}
                for number in range(selected.rounds):
                    for side in (ours, theirs) if number % 2 else (theirs, ours):
                        seconds[side].append(float(side.ask(kind=kind)))
                print(row(figure, batch, kind, seconds[ours], seconds[theirs]), flush=True)
    for side in (ours, theirs):
        side.close()


if __name__ == "__main__":
    main()
