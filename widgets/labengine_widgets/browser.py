"""The browser halves as one module: plain ES modules, side by side with their Python halves, joined at import."""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
_MODULES = (
    "palette.js",
    "state.js",
    "player.js",
    "cards.js",
    "pool.js",
    "tables.js",
    "slides.js",
    "controls.js",
    "sight.js",
    "dashboard.js",
)
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


def esm() -> str:
    """The dashboard's module: each file's own imports of its neighbours are dropped, for they stand above it."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _source(name))) for name in _MODULES)


def css() -> str:
    """The dashboard's style sheet."""
    return _source("dashboard.css")


def _source(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
