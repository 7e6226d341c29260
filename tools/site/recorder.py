"""Runs in a notebook's kernel, after its last cell: what every view shows by now, for a page without a kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ipywidgets.widgets.widget import _instances

from labengine_widgets.compare.view import CompareView
from labengine_widgets.pages.export import pair_payloads
from labengine_widgets.pages.whole_recording import recording_payload
from labengine_widgets.view import View


def write(path: str) -> None:
    """Write each open view by the id of its widget: its layout and recordings, or its figure."""
    found = {name: described for name, widget in _instances.items() if (described := describe(widget))}
    Path(path).write_text(json.dumps(found), encoding="utf-8")


def describe(widget: Any) -> dict[str, Any] | None:
    """Return what a page needs to show a view or a figure; None for any other widget."""
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
