"""Waiting of torch's threads: asleep, unless the user's environment says otherwise.

Between two products they spin by default, and take the cores from other work beside them (another lab, a browser, the
native kernels' threads). GNU's OpenMP reads its setting when it is loaded, so the variable has to be in the environment
at that moment, and only then: processes that the user starts do not inherit it.
"""

from __future__ import annotations

import os
import sys
from functools import cache

SPIN = "GOMP_SPINCOUNT"
VARIABLES = (SPIN, "OMP_WAIT_POLICY")
"""Variables by which a user decides; if one of them is set, labengine sets none."""


@cache
def load_torch() -> str:
    """Import torch with threads that wait asleep; return how they wait, for status(). Later calls return the same."""
    settings = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    if settings:
        return f"wait as {' and '.join(settings)} says"
    if "torch" in sys.modules:
        return f"spin while they wait: torch was loaded before labengine, without {SPIN}=0"
    os.environ[SPIN] = "0"
    try:
        import torch  # noqa: F401 (loading it is the point)
    finally:
        del os.environ[SPIN]
    return "wait asleep"
