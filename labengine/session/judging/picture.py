"""The tie margin as bars: the distance of the two highest logits in each run, and the distance of the runs' logits."""

from __future__ import annotations

from html import escape
from math import isfinite

from labengine.record.wording import readable
from labengine.session.judging.measured import TieMargin

_COLUMNS = 40
_WIDTH, _ROW, _LABEL, _VALUE = 640, 22, 300, 70
_COLOURS = ("#4c78a8", "#4c78a8", "#e45756")


def margin_rows(margin: TieMargin, names: tuple[str, str]) -> list[tuple[str, float]]:
    """Return (label, logits) of each bar: the margin of each run, and the largest difference of their logits."""
    rows = [
        (f"margin of {readable(token, 24)!r} in {name}", value)
        for token, name, value in zip(margin.tokens, names, margin.margins, strict=True)
    ]
    return [*rows, ("difference of the runs' logits", margin.logit_difference)]


def margin_text(margin: TieMargin, names: tuple[str, str]) -> str:
    """Return the bars as text, 40 columns for the longest one."""
    rows = margin_rows(margin, names)
    width, scale = max(len(label) for label, _ in rows), _scale(rows)
    bars = [
        f"{label.ljust(width)}  {'█' * round(_COLUMNS * _length(value, scale))} {value:.3g}" for label, value in rows
    ]
    return "\n".join([_title(margin), *bars])


def margin_svg(margin: TieMargin, names: tuple[str, str]) -> str:
    """Return the bars as an SVG element, for a notebook or a page."""
    rows, title = margin_rows(margin, names), escape(_title(margin))
    scale, height = _scale(rows), (len(margin_rows(margin, names)) + 1) * _ROW
    room = _WIDTH - _LABEL - _VALUE
    lines = [f'<text x="0" y="15" font-weight="bold">{title}</text>']
    for number, ((label, value), colour) in enumerate(zip(rows, _COLOURS, strict=True), 1):
        y, length = number * _ROW, max(1, round(room * _length(value, scale)))
        lines.append(f'<text x="0" y="{y + 15}">{escape(label)}</text>')
        lines.append(f'<rect x="{_LABEL}" y="{y + 4}" width="{length}" height="{_ROW - 8}" fill="{colour}"/>')
        lines.append(f'<text x="{_LABEL + length + 6}" y="{y + 15}">{value:.3g}</text>')
    style = "font:13px sans-serif;fill:currentColor;max-width:100%"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" style="{style}">{"".join(lines)}</svg>'
    )


def _title(margin: TieMargin) -> str:
    return f"The first differing token, position {margin.position} (in logits)"


def _length(value: float, scale: float) -> float:
    """Return a bar's length from 0 to 1: complete for infinity, and for NaN, which broken KV may lead to."""
    return value * scale if isfinite(value) else 1.0


def _scale(rows: list[tuple[str, float]]) -> float:
    """Return what a bar's value is multiplied by: the longest bar becomes 1."""
    longest = max((value for _, value in rows if isfinite(value)), default=0.0)
    return 1 / longest if longest else 0.0
