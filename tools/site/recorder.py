"""Record, in a notebook's kernel, each view's moment after each cell and its content at the end, for a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython
from ipywidgets.widgets.widget import _instances

from labengine_widgets.compare.view import CompareView
from labengine_widgets.pages.export import pair_payloads
from labengine_widgets.pages.whole_recording import recording_payload
from labengine_widgets.view import View

_moments: dict[int, dict[str, list[int]]] = {}
"""The newest moment of each side, by cell number and view."""


def begin() -> None:
    """Record the views' moments after each cell."""
    get_ipython().events.register("post_run_cell", _note)  # type: ignore[union-attr]


def _note(result: Any) -> None:
    views = {name: widget for name, widget in _instances.items() if isinstance(widget, View)}
    ends = {name: [feed.timeline.end for feed in view.feeds if feed.timeline] for name, view in views.items()}
    _moments[result.execution_count] = ends


def write(path: str) -> None:
    """Write each open view (by widget id) with its layout and recordings or its figure, and the moments."""
    found = {name: described for name, widget in _instances.items() if (described := describe(widget))}
    Path(path).write_text(json.dumps({"views": found, "moments": _moments}), encoding="utf-8")


def describe(widget: Any) -> dict[str, Any] | None:
    """Return the data with which a page shows a view or a figure; None for any other widget."""
    if isinstance(widget, View):
        return {"arrangement": widget.arrangement, "recordings": [json.loads(data) for data in _payloads(widget)]}
    if hasattr(widget, "to_plotly_json"):
        return {"figure": json.loads(widget.to_json())}
    return None


def _payloads(view: View) -> list[bytes]:
    if isinstance(view, CompareView):
        return pair_payloads(view.compared, view.compared.title)
    payload = json.loads(recording_payload(view.view_source))
    return [json.dumps(payload | {"shown": view.feeds[0].moment}).encode()]
