"""How torch's threads wait for one another: asleep, where nobody has said otherwise.

Between two products they spin by default. Where something else runs beside them (another lab, a browser, our own
kernels' threads) they take the cores from those who have work. How GNU's OpenMP waits is settled when it is loaded, so
the wish has to stand in the environment at that moment, and only then: the user's processes do not inherit it.
"""

from __future__ import annotations

import os
import sys
from functools import cache

SPIN = "GOMP_SPINCOUNT"
WISHES = (SPIN, "OMP_WAIT_POLICY")
"""The variables by which a user settles it; one of them is enough for us to stay out of it."""


@cache
def load_torch() -> str:
    """Import torch with threads that wait asleep; says how they wait, for status(). Asked again, it says the same."""
    wishes = [f"{name}={os.environ[name]}" for name in WISHES if name in os.environ]
    if wishes:
        return f"wait as {' and '.join(wishes)} says"
    if "torch" in sys.modules:
        return f"spin while they wait: torch was loaded before labengine, without {SPIN}=0"
    os.environ[SPIN] = "0"
    try:
        import torch  # noqa: F401 (loading it is the point)
    finally:
        del os.environ[SPIN]
    return "wait asleep"
