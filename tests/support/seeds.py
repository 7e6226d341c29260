"""Which seeds run at every change: on each ground the fewest workloads that together meet all that sixty meet.

What a workload meets are its events by kind and by the words in them (BlockFreed, to the queue's tail, because its
request finished), which kind follows which, and an external hit behind a local one. The table is printed by
`python tests/support/choose_seeds.py`; tests/project/test_seeds.py holds it against the workloads. `make test-all` runs
every seed (EVERY_SEED=1).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

EVERY_SEED = bool(os.environ.get("EVERY_SEED"))

COVERING = {
    "labengine": (17, 14, 21, 42, 15, 1, 24, 28, 32, 45, 55),
    "labengine-radix": (21, 1, 45, 7, 42, 14, 26, 51, 4, 6, 19, 29, 32, 33, 59),
    "vllm": (17, 14, 21, 42, 13, 25, 28, 32, 45),
    "nano-vllm": (25, 52, 32, 7, 42, 13, 28, 45),
    "nano-vllm+243": (33, 13, 57, 42, 18, 15, 28, 32, 45, 52),
    "nano-vllm-2025-07": (37, 21, 42, 5, 15, 25, 32, 33),
    "mini-sglang": (53, 51, 57, 25, 1, 26, 42, 4, 32, 56),
    "mini-sglang+142": (21, 13, 19, 51, 32, 25, 27, 42, 1, 28, 29, 45, 59),
    "sglang": (19, 54, 32, 7, 47, 13, 21, 33, 1, 40, 42, 51),
    "labengine-hybrid": (54, 28, 14, 24, 7, 12, 15, 48),
    "vllm-hybrid": (54, 28, 25, 38, 15, 24, 34, 48),
    "labengine-hybrid-prompt": (54, 37, 7, 28, 42, 24, 12, 13, 40, 48),
    "labengine-hybrid-late": (54, 28, 7, 10, 26, 20, 24, 42, 4, 12, 22, 40, 48, 57),
    "vllm-hybrid-prompt": (54, 37, 7, 6, 15, 24, 34, 12, 40, 48),
    "vllm-hybrid-late": (54, 28, 51, 7, 1, 0, 3, 12, 15, 48),
    "labengine-forks": (13, 7, 42, 19, 39, 18, 28, 32, 40, 55),
    "labengine-hybrid-forks": (15, 54, 7, 48, 49, 57, 4, 38, 6, 24, 33),
    "labengine-hybrid-late-forks": (1, 7, 28, 4, 14, 33, 49, 24, 11, 15, 27, 36, 48),
    "vllm-forks": (13, 12, 35, 19, 32, 28, 42),
}
"""By ground: the seed that meets most first, then the one that adds most."""


def selected(ground: str, num_seeds: int) -> Sequence[int]:
    """Return a sweep's seeds: those that cover the ground, at most `num_seeds`; all if every seed is wanted."""
    return range(num_seeds) if EVERY_SEED else COVERING[ground][:num_seeds]


T = TypeVar("T")


def one_in(step: int, workloads: Sequence[T]) -> Sequence[T]:
    """Return every `step`-th of a recording's workloads; all of them if every seed is wanted."""
    return workloads[:: 1 if EVERY_SEED else step]


def moments(num_moments: int, at_most: int) -> range:
    """Return the moments of one step at which a sweep interrupts it: evenly spread, or all if every seed is wanted."""
    return range(0, num_moments, 1 if EVERY_SEED else num_moments // at_most + 1)


def first(num_wanted: int, num_seeds: int) -> range:
    """Return the first seeds of a sweep that is on no ground; all `num_seeds` if every seed is wanted."""
    return range(num_seeds if EVERY_SEED else num_wanted)
