"""A comparison as one HTML file that needs nothing: both recordings, their joint words, the guide."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from labengine.trace.codec import dumps
from labengine_widgets.html_file import page, write_page
from labengine_widgets.joint import CompareBench, Joint
from labengine_widgets.page import still
from labengine_widgets.whole import whole_payload

COMPARE = {"kind": "compare", "views": []}
"""The arrangement to mount."""


def export_pair(
    bench: CompareBench, path: str | os.PathLike[str], title: str | None = None, *, charts: bool = False
) -> Path:
    """Write a page in which both sides scrub together; returns the path. charts: plotly's figures too (5 MB)."""
    return write_page(path, pair_page(bench, title, charts=charts))


def pair_page(bench: CompareBench, title: str | None = None, *, charts: bool = False) -> str:
    """The page as text, all inline. What has been played of "later" is in it; asking for more needs Python."""
    appendix, scripts = "", list[str]()
    if charts:
        from labengine_widgets.page_charts import chart_section

        appendix, scripts = chart_section(list(zip(bench.names, bench.benches, strict=True)))
    named = title or bench.title
    return page(
        named,
        COMPARE,
        pair_payloads(bench, named),
        f"<h1>{escape(named)}</h1>" + "".join(map(still, bench.benches, bench.names)),
        appendix=appendix,
        scripts=scripts,
    )


def pair_payloads(bench: CompareBench, title: str) -> list[bytes]:
    """Left, right, and what joins them, as `mount` takes them for COMPARE."""
    joint = Joint(bench).payload() | {"later": None, "title": title, "is_live": False, "is_running": False}
    return [*(whole_payload(side, has_words=False) for side in bench.benches), dumps(joint)]
