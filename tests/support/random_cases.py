"""Random tests whose failures shrink: Hypothesis chooses the numbers that a Random gives out."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from seeds import EVERY_SEED

FACTOR_OF_ALL = 10
"""How many times as many examples `make test-all` has."""

UNHURRIED = settings(deadline=None, suppress_health_check=list(HealthCheck))
"""For cases that Hypothesis draws: none fails because the machine is slow."""


def for_random(check: Callable[[Random], object], examples: int) -> None:
    """Call check(rng) at least `examples` times, with the same numbers in each run of the tests; ignore its result.

    When it raises, it is called again with ever fewer and smaller numbers, and the shortest failure is reported.
    """
    count, num_completed = examples * FACTOR_OF_ALL if EVERY_SEED else examples, 0

    def completes(rng: Random) -> None:
        nonlocal num_completed
        check(rng)
        num_completed += 1

    how = settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    how(given(st.randoms(use_true_random=False))(completes))()
    assert num_completed >= count, f"{num_completed} of {count} examples completed"
