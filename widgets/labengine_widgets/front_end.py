"""Widgets in a process without a front end, such as a plain Python: only their owner keeps them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from html import escape
from typing import Any

from comm import DummyComm
from ipywidgets.widgets import widget as registry

from labengine.system.threads import weakly


def keep_by_owner(widget: registry.Widget) -> None:
    """Have ipywidgets keep a widget only where a front end may show it. Otherwise a lab, once shown, is never freed.

    Call it once the widget is open. ipywidgets lists every widget, and its comm holds one of its methods.
    """
    if isinstance(widget.comm, DummyComm):
        widget.comm.on_msg(weakly(widget._handle_msg))
        registry._instances.pop(widget.model_id, None)


# -- a live view, and above it the picture that a saved notebook keeps; one of the two is visible ----------------------


WIDGET = "application/vnd.jupyter.widget-view+json"
SVG = "image/svg+xml"

WORDS = "This is a saved picture. Run the cell to make it live."

STYLE = (
    ".jp-OutputArea-child:has([data-labengine-picture]) + .jp-OutputArea-child "
    ".jupyter-widgets:not(:has(*)) { display: none; }"
)
"""CSS that hides JupyterLab's error message for a widget without its model, below the picture."""


def display_with_picture(bundle: tuple[dict[str, Any], dict[str, Any]], token: str) -> None:
    """Publish a view as two outputs: its picture and text, then the widget alone.

    A front end that has the widget's model hides the picture (stage/saved_picture.js finds it by the token). All
    others, such as a reopened notebook, nbviewer or GitHub, show the picture.
    """
    from IPython.display import publish_display_data

    publish: Callable[..., None] = publish_display_data
    data, metadata = bundle
    picture = {name: value for name, value in data.items() if name != WIDGET}
    publish({**picture, "text/html": picture_html(data[SVG], data["text/plain"], token)}, metadata)
    publish({WIDGET: data[WIDGET], "text/plain": ""}, metadata)


def picture_html(svg: str, text: str, token: str) -> str:
    """Return the picture as an image, which runs no scripts, with a line on how to get the live view."""
    source, first_line = b64encode(svg.encode()).decode(), escape(text.splitlines()[0] if text else "", quote=True)
    image = f'<img alt="{first_line}" src="data:{SVG};base64,{source}" style="max-width: 100%">'
    return (
        f'<div data-labengine-picture="{escape(token, quote=True)}"><style>{STYLE}</style>{image}<p>{WORDS}</p></div>'
    )
