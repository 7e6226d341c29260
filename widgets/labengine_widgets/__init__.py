"""What you see of the engine: each widget's Python half and browser half side by side. Loads nothing by itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labengine.deprecated import new_name

if TYPE_CHECKING:
    from labengine_widgets.ascii import block_map
    from labengine_widgets.dashboard import Dashboard
    from labengine_widgets.svg import block_map_svg
    from labengine_widgets.view_source import ViewSource

__all__ = ["Dashboard", "ViewSource", "block_map", "block_map_svg"]

_HOMES = {"ViewSource": "view_source", "Dashboard": "dashboard", "block_map": "ascii", "block_map_svg": "svg"}


def __getattr__(name: str) -> Any:
    name = new_name(__name__, name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
