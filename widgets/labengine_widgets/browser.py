"""The browser half: one ES module and one style sheet, bundled from `widgets/browser`; the layouts that it shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

Arrangement = dict[str, Any]
"""The layout to show: {"kind": "dashboard", "view" or "compare", "views": [names]}, with "varied" for sliders above."""

DASHBOARD: Arrangement = {"kind": "dashboard", "views": []}
POOL: Arrangement = {"kind": "view", "views": ["pool"]}
COMPARE: Arrangement = {"kind": "compare", "views": []}

_STATIC = Path(__file__).parent / "static"


@cache
def esm() -> str:
    """Return the browser half as one ES module.

    Its default export is anywidget's `{render}`. Code that is appended to the module finds `mount` (for a page without
    Python) in the module's one variable, `labengine`.
    """
    return (_STATIC / "widget.js").read_text(encoding="utf-8")


@cache
def css() -> str:
    """Return the style sheet of all views."""
    return (_STATIC / "widget.css").read_text(encoding="utf-8")
