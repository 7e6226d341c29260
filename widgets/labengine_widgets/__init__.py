"""The views of a lab: Python prepares recordings, words and answers; widgets/browser draws them.

    pages                   HTML files without Python
    compare                 two recordings side by side
    view                    the widgets
    feed, pictures          from a recording to its views; text, SVG and plotly figures
    why                     answers to "Why?"
    words                   names, runs of events, captions and sentences
    view_source, selection, browser    a lab's interface to views; the selection; the bundled browser half

A row imports only rows below it (tests/project/test_import_rules.py). Importing the package loads none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labengine_widgets.pictures.ascii import block_map
    from labengine_widgets.pictures.svg import block_map_svg
    from labengine_widgets.view import Dashboard
    from labengine_widgets.view_source import ViewSource

__all__ = ["Dashboard", "ViewSource", "block_map", "block_map_svg"]

_HOMES = {
    "ViewSource": "view_source",
    "Dashboard": "view",
    "block_map": "pictures.ascii",
    "block_map_svg": "pictures.svg",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
