"""The finder's drivers, imported as in the engine's interpreter: by file, without labengine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def driver(name: str) -> Any:
    """Return a module of labengine/driven/inside; it imports the engine from where the environment says."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "labengine" / "driven" / "inside"))
    return importlib.import_module(name)
