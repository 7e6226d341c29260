"""The project's folder, and the environment of Python processes that import from it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = (ROOT, ROOT / "widgets", ROOT / "tests", ROOT / "tests" / "support")


def child_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with `variables`, in which the packages and the tests' modules are found.

    A PYTHONPATH that is set comes first: a process that tests another copy of a package starts processes that do.
    """
    paths = (os.environ.get("PYTHONPATH"), *map(str, _IMPORTED))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}
