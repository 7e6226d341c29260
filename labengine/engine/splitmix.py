"""A random number without state, by splitmix64. See random_numbers.py for a whole batch."""

from __future__ import annotations

_MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """Return a pseudorandom number in [0, 1) of (seed, position): two rounds of splitmix64."""
    return (splitmix64(splitmix64(seed & _MASK) + position) >> 11) / 2**53


def splitmix64(state: int) -> int:
    """Return the mixed state (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014)."""
    z = (state + GOLDEN_GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
