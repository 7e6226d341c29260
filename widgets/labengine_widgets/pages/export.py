"""A recording, or a comparison, as one HTML file that needs no Python, no network and no other file."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from labengine.record.files.codec import dumps
from labengine_widgets.browser import COMPARE, DASHBOARD
from labengine_widgets.compare.captions import PairDocument
from labengine_widgets.pages.html_page import page, write_page
from labengine_widgets.pages.whole_recording import recording_payload
from labengine_widgets.pictures.ascii import block_map
from labengine_widgets.pictures.svg import block_map_svg
from labengine_widgets.view_source import PairViewSource, ViewSource


def export_html(source: ViewSource, path: str | os.PathLike[str], title: str | None = None) -> Path:
    """Write the recording as a page in which it scrubs, from its first step on; returns the path.

    It keeps the words, the code that decided, and the likeliest answers to Why?
    """
    return write_page(path, html_page(source, title))


def html_page(source: ViewSource, title: str | None = None) -> str:
    """Return the page as text: style, recording and browser half, all inline."""
    return page(
        title or source.title,
        DASHBOARD,
        [recording_payload(source, is_from_start=True)],
        still(source, title or source.title),
        heading=title or source.title,
    )


def still(source: ViewSource, title: str) -> str:
    """Return the newest state as markup without scripts: a picture, and the same as text."""
    snapshot = source.fold().snapshot()
    picture = block_map_svg(snapshot, source.token_text, title=title, timeline=source.timeline)
    return f"{picture}<pre>{escape(block_map(snapshot, source.timeline))}</pre>"


def export_pair(
    source: PairViewSource,
    path: str | os.PathLike[str],
    title: str | None = None,
    *,
    intro: str = "",
    appendix: str = "",
) -> Path:
    """Write a page in which both sides scrub together; returns the path.

    intro, appendix: markup above and below, inserted unchanged.
    """
    return write_page(path, pair_page(source, title, intro=intro, appendix=appendix))


def pair_page(
    source: PairViewSource,
    title: str | None = None,
    *,
    intro: str = "",
    appendix: str = "",
) -> str:
    """Return the page as text, all inline. Follow-ups that were run are in it; running more needs Python."""
    named = title or source.title
    heading = "" if intro else f"<h1>{escape(named)}</h1>"
    return page(
        named,
        COMPARE,
        pair_payloads(source, named),
        heading + "".join(map(still, source.view_sources, source.names)),
        intro=intro,
        appendix=appendix,
    )


def pair_payloads(source: PairViewSource, title: str) -> list[bytes]:
    """Return the payloads of the left side, the right side and the comparison, as `mount` takes them for COMPARE."""
    without_python = {"follow_up": None, "title": title, "is_live": False, "is_running": False}
    document = PairDocument(source).payload() | without_python
    return [*(recording_payload(side, has_words=False) for side in source.view_sources), dumps(document)]
