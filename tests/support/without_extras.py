"""A plugin of pytest (`-p without_extras`), and a module to import first: no package of an extra can be imported."""

from __future__ import annotations

import sys

from labengine.extras import EXTRAS

MODULES = tuple(module for modules in EXTRAS.values() for module in modules if module != "ipykernel")
"""All but ipykernel: ipywidgets looks whether it is among the imported ones."""

loaded = [name for name in MODULES if name in sys.modules]
if loaded:
    raise RuntimeError(f"these were imported before: {', '.join(loaded)}")
sys.modules.update(dict.fromkeys(MODULES))
