"""A report in a notebook: rows that open, pictures as SVG, and no script."""

from __future__ import annotations

from html import escape

from labengine.prefix_doctor.report.markup import (
    CURVES_TITLE,
    STYLE,
    closing,
    findings,
    flat_curves,
    head,
    look_ups,
    section,
    sums,
    table,
    tenants,
)
from labengine.prefix_doctor.report.pictures import Picture, pictures_of
from labengine.prefix_doctor.report.report import Report
from labengine.prefix_doctor.report.svg import svg_of

MAX_LOOK_UPS = 50
"""Most look-ups in a notebook: the last ones."""


def notebook_html_of(report: Report) -> str:
    """Return the report as one element that includes its style."""
    pictures = "".join(map(_figure, pictures_of(report)))
    parts = (
        head(report, "h2"),
        sums(report.sums),
        section("Findings", findings(report)),
        section("By tenant", tenants(report)),
        flat_curves(report),
        _folded(CURVES_TITLE, f'<div class="pictures">{pictures}</div>') if pictures else "",
        section("Look-ups", look_ups(report.look_ups, MAX_LOOK_UPS)),
        closing(report),
    )
    return f'<div class="le-doctor"><style>{STYLE}</style>{"".join(parts)}</div>'


def _figure(picture: Picture) -> str:
    numbers = _folded("The numbers", table(picture.rows))
    return f"<figure><figcaption>{escape(picture.title)}</figcaption>{svg_of(picture)}{numbers}</figure>"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
