"""Pools for random workloads: one group of full attention, or with windows beside it, in blocks of several sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

BLOCK_SIZES = (
    *[(1, (1, 1, 1))] * 4,
    (2, (2, 2, 2)),
    (2, (1, 1, 1)),
    (3, (1, 1, 1)),
    (1, (2, 2, 2)),
    (1, (2, 1, 4)),
    (2, (3, 2, 3)),
    (4, (2, 1, 2)),
)
"""Of the full group and the windows, in hashed blocks; models mostly have them equal."""


@dataclass(frozen=True)
class Layout:
    """The pool: groups of (block size, window or None), and the size of the blocks that are hashed."""

    hash_block_size: int
    groups: tuple[tuple[int, int | None], ...]
    retention_interval: int | None

    @property
    def step_size(self) -> int:
        """Where blocks of every group end together: hits and external tokens come in multiples of it."""
        return math.lcm(*(size for size, _ in self.groups))

    @property
    def largest_window(self) -> int:
        """In tokens; 0 without windows."""
        return max((window for _, window in self.groups if window), default=0)

    def num_blocks(self, num_tokens: int) -> int:
        """Blocks of all groups that hold every one of the tokens."""
        return sum(-(-num_tokens // size) for size, _ in self.groups)

    def num_cached_blocks(self, num_tokens: int) -> int:
        """Blocks that a prompt of so many tokens leaves in the cache: of a window, the end of each interval."""
        num_aligned = num_tokens // self.step_size * self.step_size
        interval = (self.retention_interval if self.is_sparse else self.step_size) or num_aligned or 1
        num_blocks = 0
        for size, window in self.groups:
            needed = -(-(window - 1) // size) if window else num_aligned
            num_blocks += num_aligned // interval * min(needed, interval // size) + min(
                needed, num_aligned % interval // size
            )
        return num_blocks

    @property
    def is_sparse(self) -> bool:
        """Whether windows keep only some of their blocks."""
        return self.retention_interval is not None


def random_layout(rng: Random, kind: str) -> Layout:
    """Groups of that kind; windows mostly of one block size, as models have them."""
    if kind == "full":
        unit = rng.choice((1, 2, 3, 4, 4, 8))
        return Layout(unit, ((unit, None),), rng.choice((None, None, 0)))
    full, window_sizes = rng.choice(BLOCK_SIZES)
    unit = rng.choice((1, 2, 3, 4, 4, 8) if full == window_sizes[0] else (1, 1, 2, 2, 3))
    sizes = [unit * size for size in window_sizes[: rng.randint(1, 3)]]
    longest = math.lcm(unit * full, *sizes)
    windows: list[tuple[int, int | None]] = [(size, _window(rng, size, longest)) for size in sizes]
    if rng.random() < 0.5:
        windows = [(size, windows[0][1]) for size in sizes]
    groups = [(unit * full, None), *windows]
    if rng.random() < 0.2:
        rng.shuffle(groups)
    step_size = math.lcm(*(size for size, _ in groups))
    return Layout(unit, tuple(groups), rng.choice((None, None, 0, step_size * rng.randint(1, 4))))


def _window(rng: Random, size: int, step_size: int) -> int:
    """One block and more; mostly so wide that a hit stays in it while external tokens come behind."""
    if rng.random() < 0.04:
        return 1
    if rng.random() < 0.35:
        return rng.choice((size, 2 * size, 2 * size + 1, 3 * size, 4 * size - 1))
    return rng.randint(3, 5) * step_size + rng.choice((0, 0, 1, -1, rng.randint(0, step_size)))
