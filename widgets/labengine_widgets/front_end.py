"""Widgets in a process without a front end, such as a plain Python: their owner alone keeps them."""

from __future__ import annotations

from comm import DummyComm
from ipywidgets.widgets import widget as registry

from labengine.system.threads import weakly


def keep_by_owner(widget: registry.Widget) -> None:
    """Have ipywidgets keep a widget only where a front end may show it: else a lab once shown is never freed.

    Call it once the widget is open. ipywidgets lists every widget, and the comm has a method of it.
    """
    if isinstance(widget.comm, DummyComm):
        widget.comm.on_msg(weakly(widget._handle_msg))
        registry._instances.pop(widget.model_id, None)
