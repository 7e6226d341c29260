"""Random numbers without state: each depends only on a seed and a position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labengine.engine.splitmix import GOLDEN_GAMMA

_MASK = 2**64 - 1


def mixed_seeds(seeds: Sequence[int]) -> NDArray[np.uint64]:
    """Mix the seeds for `uniforms`."""
    return _mixed(np.array([seed & _MASK for seed in seeds], np.uint64))


def uniforms(mixed: NDArray[np.uint64], positions: Sequence[int]) -> NDArray[np.float64]:
    """Return `uniform` of each seed and position (>= 0), for a batch at once: float64 [len(positions)].

    mixed: a result of mixed_seeds.
    """
    return (_mixed(mixed + np.array(positions, np.uint64)) >> np.uint64(11)) / 2**53


def _mixed(states: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of each state; sums and products of uint64 wrap around."""
    z = states + np.uint64(GOLDEN_GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
