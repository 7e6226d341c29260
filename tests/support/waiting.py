"""Waits that end on a condition, with one patience for all tests: no outcome depends on the machine's speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_COMPUTATION_S = 0.025
"""Seconds that the computation of _slowness takes on an idle core of Zen 3."""

_MAX_SLOWNESS = 3.0
"""Keeps a wait shorter than pytest's own timeout, so that a failed wait still says what it waited for."""


def _slowness() -> float:
    """Return how many times slower than an idle fast core this process computes, other load included; 1 to 3."""
    began = time.perf_counter()
    sum(number * number for number in range(300_000))
    return min(max(1.0, (time.perf_counter() - began) / _COMPUTATION_S), _MAX_SLOWNESS)


PATIENCE = 240.0 * _slowness()
"""Seconds after which a test gives up waiting. Only a test that fails waits so long."""


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "the condition",
    *,
    between: Callable[[], object] = lambda: time.sleep(0.001),
) -> None:
    """Return as soon as condition() is true; call between() after each look at which it is not.

    what: names the condition in the AssertionError that is raised when the patience has run out.
    """
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE:.0f} s for {what() if callable(what) else what}")
        between()


def join(*threads: threading.Thread) -> None:
    """Wait for the end of each thread. Raises AssertionError where one goes on."""
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"{thread.name} has not ended after {PATIENCE:.0f} s"
