"""A recording as one HTML file that needs nothing: no Python, no network, no other file."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from labengine_widgets.ascii import block_map
from labengine_widgets.html_file import page, write_page
from labengine_widgets.svg import block_map_svg
from labengine_widgets.view_source import ViewSource
from labengine_widgets.whole import whole_payload


def export_html(
    source: ViewSource, path: str | os.PathLike[str], title: str | None = None, *, charts: bool = False
) -> Path:
    """Write the recording as a page in which it scrubs; returns the path.

    It keeps the words, the code that decided, and the likeliest answers to Why? charts: plotly's figures too, with
    plotly itself (5 MB).
    """
    return write_page(path, html_page(source, title, charts=charts))


def html_page(source: ViewSource, title: str | None = None, *, charts: bool = False) -> str:
    """The page as text: style, recording and browser halves, all inline."""
    appendix, scripts = "", list[str]()
    if charts:
        from labengine_widgets.page_charts import chart_section

        appendix, scripts = chart_section([(source.title, source)])
    return page(
        title or source.title,
        {"kind": "dashboard", "views": []},
        [whole_payload(source)],
        still(source, title or source.title),
        heading=title or "",
        appendix=appendix,
        scripts=scripts,
    )


def still(source: ViewSource, title: str) -> str:
    """The newest state without scripts: a picture, and the same in characters."""
    snapshot = source.fold().snapshot()
    picture = block_map_svg(snapshot, source.token_text, title=title, timeline=source.timeline)
    return f"{picture}<pre>{escape(block_map(snapshot, source.timeline))}</pre>"
