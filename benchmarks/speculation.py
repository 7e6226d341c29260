"""Tokens a second with and without speculation, per proposer, draft length and kind of text: where it pays here.

python benchmarks/speculation.py [--model smollm2] [--dtype float32] [--batch 1 4] [--repeats 3]

Each cell is a lab of its own on the same loaded weights; the median of its repeats counts. The texts, the draft lengths
and the bar below were fixed before anything was measured. Greedy, so that every cell generates the same tokens: where
it does not, the cell says so (torch's products of several rows are rounded otherwise than those of one).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import labengine
from labengine import DraftModel, Lab, NGram

REPEATING = (
    "The cat sat on the mat. The dog lay by the door. The cat sat on the mat. The dog lay by the door. The cat sat on"
    " the mat. The dog lay by the door. The cat sat on the mat. The dog lay by the"
)
CODE = """def add(a, b):
    \"\"\"Return the sum of a and b.\"\"\"
    return a + b


def subtract(a, b):
    \"\"\"Return the difference of a and b.\"\"\"
    return a - b


def multiply(a, b):
"""
PROSE = (
    "It was late in the autumn, and the last boats had come home before the storm. In the harbour an old engineer was"
    " telling a child how the lighthouse had been built, and why"
)
TEXTS = {"repeating": REPEATING, "code": CODE, "prose": PROSE}

DRAFT_LENGTHS = (2, 4, 8)
NUM_LAYERS = 10
"""Of the shallow draft: a third of smollm2's."""
MAX_TOKENS = 128

BAR = 1.7
"""Tokens a second on the repeating text at batch 1, with the best draft length, over those without speculation."""


def proposers() -> dict[str, NGram | DraftModel | None]:
    """What is measured, by name; None is the control."""
    found: dict[str, NGram | DraftModel | None] = {"without": None}
    for num_drafts in DRAFT_LENGTHS:
        found[f"n-gram, {num_drafts}"] = NGram(num_drafts)
        found[f"first {NUM_LAYERS} layers, {num_drafts}"] = DraftModel(num_drafts, num_layers=NUM_LAYERS)
    return found


class Cell:
    """One text with one proposer: seconds per repeat, and what came out."""

    def __init__(self, text: str, batch: int, proposer: NGram | DraftModel | None, settings: dict[str, object]) -> None:
        self._text, self._batch = text, batch
        self._settings = {"speculation": proposer, "check": False, "record": False, **settings}
        self.seconds: list[float] = []
        self.tokens: list[tuple[int, ...]] = []
        self.acceptance = self.tokens_per_step = 0.0

    def run(self) -> None:
        """Generate once, in a new lab; the prompt's own step is not timed."""
        with Lab(**self._settings) as lab:  # type: ignore[arg-type]
            for _ in range(self._batch):
                lab.add(self._text, max_tokens=MAX_TOKENS, ignore_eos=True)
            lab.step()
            started = perf_counter()
            lab.run()
            self.seconds.append(perf_counter() - started)
            stats = lab.stats()
            self.acceptance, self.tokens_per_step = stats.mean_acceptance, stats.tokens_per_step
            self.tokens = [request.token_ids for request in lab.snapshot().requests.values()]

    @property
    def tokens_per_second(self) -> float:
        """The median of the repeats."""
        return self._batch * (MAX_TOKENS - 1) / median(self.seconds)


def measured(text: str, batch: int, settings: dict[str, object], repeats: int) -> dict[str, Cell]:
    """Measure every proposer on one text, in turns: what slows the machine down slows all of them."""
    cells = {name: Cell(text, batch, proposer, settings) for name, proposer in proposers().items()}
    for _ in range(repeats):
        for cell in cells.values():
            cell.run()
    return cells


def report(name: str, batch: int, cells: dict[str, Cell]) -> float:
    """Print one table; return the best ratio of an n-gram look-up to the control."""
    control = cells["without"]
    print(f"\n{name}, batch {batch}: {control.tokens_per_second:,.1f} tokens a second without speculation")
    print(f"{'':24}{'tokens/s':>10}{'ratio':>8}{'accepted':>10}{'a step':>8}")
    ratios: dict[str, float] = {}
    for proposer, cell in cells.items():
        ratios[proposer] = cell.tokens_per_second / control.tokens_per_second
        differs = "" if cell.tokens == control.tokens else "  other tokens"
        figures = f"{cell.tokens_per_second:>10,.1f}{ratios[proposer]:>8.2f}{cell.acceptance:>10.0%}"
        print(f"{proposer:24}{figures}{cell.tokens_per_step:>8.2f}{differs}")
    return max(ratio for proposer, ratio in ratios.items() if proposer.startswith("n-gram"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and say whether the bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args(arguments)
    settings = {"model": asked.model, "dtype": asked.dtype, "device": asked.device}
    best = 0.0
    with Lab(**settings) as keeper:  # its weights stay loaded, so that every cell begins alike
        print(f"labengine {labengine.__version__}\n{keeper.status()}")
        for batch in asked.batch:
            for name, text in TEXTS.items():
                ratio = report(name, batch, measured(text, batch, settings, asked.repeats))
                best = max(best, ratio if (name, batch) == ("repeating", 1) else 0.0)
    if best:
        print(f"\nrepeating text, batch 1: {best:.2f} times, of {BAR} wanted: {'reached' if best >= BAR else 'missed'}")


if __name__ == "__main__":
    main()
