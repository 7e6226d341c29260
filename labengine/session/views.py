"""Single views by name."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.session.keywords import refuse_unknown

if TYPE_CHECKING:
    from labengine.session.recorded import Closeable, Recorded

VIEW_NAMES = (
    *("pool", "tables", "map", "queue", "step", "timeline", "bands", "groups", "tier", "log", "code", "why"),
    *("charts", "xray"),
)

_ALSO_CALLED = {"external tier": "tier", "external": "tier", "ext": "tier"}
"""Other names for views: what the documentation and the dashboard call them."""

_FIGURES = ("charts", "xray")
"""Those that plotly draws: each stands alone."""


def named(name: Any) -> Any:
    """A view's own name, for another one that it goes by; anything else as it is."""
    return _ALSO_CALLED.get(name, name) if isinstance(name, str) else name


def key_of_view(names: tuple[str, ...], settings: Mapping[str, Any]) -> tuple[object, ...]:
    """By which a view is known that has been made: equal ones are one widget."""
    return tuple(part if isinstance(part, Hashable) else repr(part) for part in (*names, *settings, *settings.values()))


def view_of(recorded: Recorded, names: tuple[str, ...], settings: Mapping[str, Any]) -> Closeable:
    """A widget with these views, in this order. ConfigError for names that no view has, and for none.

    TypeError for settings that the view does not know.
    """
    for name in names:
        _require_known(name)
    if not names:
        raise ConfigError(f'which view? lab.view("pool"), or several of {", ".join(VIEW_NAMES)}')
    if names == ("xray",):
        return _xray(recorded, settings)
    refuse_unknown(f"view({', '.join(map(repr, names))})", dict(settings), _no_settings)
    if names == ("charts",):
        from labengine_widgets.charts import charts

        return charts(recorded.view_source())
    figures = [name for name in names if name in _FIGURES]
    if figures:
        raise ConfigError(f"{figures[0]!r} is a figure of its own: lab.view({figures[0]!r})")
    from labengine_widgets.view import View

    return View(recorded.feed, {"kind": "view", "views": [*names]})


def _xray(recorded: Recorded, settings: Mapping[str, Any]) -> Closeable:
    from labengine.lab import Lab
    from labengine.session.xray import xray

    refuse_unknown("view('xray')", dict(settings), xray)
    if not isinstance(recorded, Lab):
        raise ConfigError("the attention X-ray computes with the model: a recording has none")
    return xray(recorded, **settings)


def _require_known(name: object) -> None:
    if isinstance(name, (list, tuple, set)):
        several = ", ".join(repr(one) for one in name)
        raise ConfigError(f"each view is named by itself: lab.view({several})")
    if name not in VIEW_NAMES:
        near = get_close_matches(str(name), VIEW_NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(VIEW_NAMES)}"
        raise ConfigError(f"there is no view {name!r}; {hint}")


def _no_settings() -> None:
    """What a view takes besides its name."""
