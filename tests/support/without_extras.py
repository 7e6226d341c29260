"""A plugin of pytest (`-p without_extras`), and a module to import first: no package of an extra is found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from labengine.system.extras import EXTRAS

MODULES = {module for extra in ("models", "lab") for module in EXTRAS[extra]}

loaded = MODULES & sys.modules.keys()
if loaded:
    raise RuntimeError(f"these were imported before: {', '.join(sorted(loaded))}")


class WithoutExtras(PathFinder):
    """Finds all modules but those."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec; None for a package of an extra, as where it is not installed."""
        return None if fullname in MODULES else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutExtras
