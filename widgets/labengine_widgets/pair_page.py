"""A comparison as one HTML file that needs nothing: both recordings, their joint words, the guide."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from labengine.trace.codec import dumps
from labengine_widgets.html_file import page, write_page
from labengine_widgets.joint import Joint, PairViewSource
from labengine_widgets.page import still
from labengine_widgets.whole import whole_payload

COMPARE = {"kind": "compare", "views": []}
"""The arrangement to mount."""


def export_pair(
    source: PairViewSource, path: str | os.PathLike[str], title: str | None = None, *, charts: bool = False
) -> Path:
    """Write a page in which both sides scrub together; returns the path. charts: plotly's figures too (5 MB)."""
    return write_page(path, pair_page(source, title, charts=charts))


def pair_page(source: PairViewSource, title: str | None = None, *, charts: bool = False) -> str:
    """The page as text, all inline. What has been played of "later" is in it; asking for more needs Python."""
    appendix, scripts = "", list[str]()
    if charts:
        from labengine_widgets.page_charts import chart_section

        appendix, scripts = chart_section(list(zip(source.names, source.view_sources, strict=True)))
    named = title or source.title
    return page(
        named,
        COMPARE,
        pair_payloads(source, named),
        f"<h1>{escape(named)}</h1>" + "".join(map(still, source.view_sources, source.names)),
        appendix=appendix,
        scripts=scripts,
    )


def pair_payloads(source: PairViewSource, title: str) -> list[bytes]:
    """Left, right, and what joins them, as `mount` takes them for COMPARE."""
    joint = Joint(source).payload() | {"later": None, "title": title, "is_live": False, "is_running": False}
    return [*(whole_payload(side, has_words=False) for side in source.view_sources), dumps(joint)]
