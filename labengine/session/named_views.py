"""Single views by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from labengine.config import ConfigError, checked_bool
from labengine.session.settings import refuse_unknown
from labengine.session.violation_warnings import stacklevel_of_caller
from labengine.system.extras import require_extra

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.feed.feed import Feed
    from labengine_widgets.pictures.xray import XRay

VIEW_NAMES = ("pool", "tables", "map", "queue", "step", "timeline", "tier", "tree", "log", "why", "charts", "xray")


class Closeable(Protocol):
    """A widget."""

    def close(self) -> None:
        """Remove it from the page."""


class MakeXRay(Protocol):
    """Makes the attention X-ray of a request."""

    def __call__(self, *, request: int | str = 0, position: int | None = None) -> XRay:
        """position: of the token whose attention is shown; None: the newest."""


_ALSO_CALLED = {"prefix tree": "tree", "radix": "tree", "external tier": "tier", "external": "tier", "ext": "tier"}
"""Other names of views in the documentation and on the dashboard."""

_PART_OF = {"bands": "timeline", "groups": "tables", "code": "why"}
"""Views of earlier versions, named in notebooks, and the views that contain them now."""


def view_names(names: Iterable[Any]) -> tuple[Any, ...]:  # users pass anything
    """Return each view's present name, once; unknown names unchanged, for the caller to check.

    Warns about the name of a view that is now part of another.
    """
    own = [_view_name(name) if isinstance(name, str) else name for name in names]
    return tuple(name for i, name in enumerate(own) if name not in own[:i])


def _view_name(name: str) -> str:
    if name in _PART_OF:
        text = f"the view {name!r} is now part of {_PART_OF[name]!r}, which is shown instead"
        warnings.warn(text, stacklevel=stacklevel_of_caller())
        return _PART_OF[name]
    return _ALSO_CALLED.get(name, name)


def key_of_view(names: tuple[str, ...], settings: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the key of a view: views with equal keys are one widget."""
    return tuple(part if isinstance(part, Hashable) else repr(part) for part in (*names, *settings, *settings.values()))


def view_of(
    names: tuple[str, ...],
    settings: dict[str, Any],
    feed: Callable[[], Feed],
    xray: MakeXRay | None,
) -> Callable[[], Closeable]:
    """Return the function that makes a widget with these views, in this order.

    ConfigError for unknown names, and without a name; TypeError for settings that the view does not have.
    """
    for name in names:
        _require_known(name)
    if not names:
        raise ConfigError(f'which view? use lab.view("pool"), or name one or more of {", ".join(VIEW_NAMES)}')
    refuse_unknown(f"view({', '.join(map(repr, names))})", settings, _SETTINGS.get(names, _no_settings))
    if names == ("xray",):
        if xray is None:
            raise ConfigError("the attention X-ray needs a model, and a recording has none")
        require_extra("lab", 'view("xray")', "plotly")
        return partial(xray, **settings)
    if "xray" in names:
        raise ConfigError("'xray' is a separate figure: use lab.view('xray')")
    is_plain = checked_bool("plain", settings.get("plain", False))
    return lambda: _view(feed(), names, is_plain)


def refuse_outside_dashboard(names: Iterable[object]) -> None:
    """Raise ConfigError for unknown names, and for a view drawn by plotly, which is a separate widget."""
    for name in names:
        _require_known(name)
        if name == "xray":
            raise ConfigError("a dashboard cannot include the X-ray: show it with lab.view('xray')")


def _view(feed: Feed, names: tuple[str, ...], is_plain: bool = False) -> Closeable:
    from labengine_widgets.view import View

    return View(feed, {"kind": "view", "views": [*names]} | ({"is_plain": True} if is_plain else {}))


def _require_known(name: object) -> None:
    if isinstance(name, (list, tuple, set)):
        several = ", ".join(repr(one) for one in name)
        raise ConfigError(f"give each view as a separate argument: lab.view({several})")
    if name not in VIEW_NAMES:
        near = get_close_matches(str(name), VIEW_NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the views are {', '.join(VIEW_NAMES)}"
        raise ConfigError(f"no view {name!r}; {hint}")


def _pool_settings(*, plain: bool = False) -> None:
    """plain: for a first-time reader."""


def _no_settings() -> None:
    """The settings of most views."""


_SETTINGS: dict[tuple[str, ...], Callable[..., object]] = {
    ("xray",): MakeXRay.__call__,
    ("pool",): _pool_settings,
}
"""The settings of each view that has any."""
