"""A recorded plotly figure as a small SVG, for a page without plotly: stacked bars, and lines with named points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import count, pairwise
from typing import Any, NamedTuple

INK, GRID = "#808080", "#80808050"
"""Greys that are readable on white and on black, as a picture does not know the page's theme."""
LEFT, RIGHT, TOP, BOTTOM = 62, 18, 34, 50
MOST_TICKS = 8
HATCH = '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'


class Plot(NamedTuple):
    """The area between the axes in pixels, and the axes' highest values."""

    width: float
    height: float
    most_x: float
    most_y: float

    def x(self, value: float) -> float:
        """Return the x coordinate of a value."""
        return LEFT + self.width * value / self.most_x

    def y(self, value: float) -> float:
        """Return the y coordinate of a value."""
        return TOP + self.height * (1 - value / self.most_y)


def figure_svg(figure: Mapping[str, Any]) -> str:
    """Return the picture of {"data": traces, "layout": layout}. Raises ValueError for other kinds of traces."""
    traces, layout = figure["data"], figure["layout"]
    kinds = {trace["type"] for trace in traces}
    if kinds == {"bar"} and layout.get("barmode") == "stack":
        return _bars(traces, layout)
    if kinds == {"scatter"}:
        return _lines(traces, layout)
    raise ValueError(f"no SVG for a figure with traces {sorted(kinds)}: figure_svg draws stacked bars and lines")


def _bars(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> str:
    names = traces[0]["x"]
    tops = [sum(trace["y"][place] for trace in traces) for place in range(len(names))]
    plot = _plot(layout, len(names), max(tops))
    parts = [*_axes(plot, layout), *_legend(traces)]
    for place, name in enumerate(names):
        parts.append(_text(plot.x(place + 0.5), TOP + plot.height + 18, name))
        below = 0.0
        for trace in traces:
            share = trace["y"][place]
            high, low = plot.y(below + share), plot.y(below)
            box = f'x="{plot.x(place + 0.1):.1f}" y="{high:.1f}" width="{plot.x(0.8) - LEFT:.1f}"'
            parts += [f'<rect {box} height="{low - high:.1f}" fill="{paint}"/>' for paint in _paints(trace)]
            if "texttemplate" in trace and low - high > 16:
                parts.append(_text(plot.x(place + 0.5), high + 16, _label(share, layout["yaxis"]), fill="#fff"))
            below += share
    return _svg(layout, parts)


def _lines(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> str:
    most = [layout[axis]["range"][1] for axis in ("xaxis", "yaxis")]
    plot = _plot(layout, *most)
    parts = [*_axes(plot, layout)]
    for value in ticks(most[0]):
        parts.append(_text(plot.x(value), TOP + plot.height + 18, _label(value, layout["xaxis"])))
    for trace in traces:
        points = [(plot.x(x), plot.y(y)) for x, y in zip(trace["x"], trace["y"], strict=True)]
        color = escape(trace["line"]["color"])
        for (x, y), (next_x, next_y) in pairwise(points):
            ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{next_x:.1f}" y2="{next_y:.1f}"'
            parts.append(f'<line {ends} stroke="{color}" stroke-width="2"/>')
        for (x, y), name in zip(points, trace.get("text", [""] * len(points)), strict=True):
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>', _text(x + 8, y - 8, name, "start")]
    return _svg(layout, parts)


def ticks(most: float) -> list[float]:
    """Return round values from 0 to `most` (> 0), at most MOST_TICKS apart from 0."""
    powers = (10.0**power for power in count(-3))
    step = next(one * power for power in powers for one in (1, 2, 5) if most / (one * power) <= MOST_TICKS)
    return [step * number for number in range(int(most / step + 1e-9) + 1)]


def _plot(layout: Mapping[str, Any], most_x: float, most_y: float) -> Plot:
    return Plot(layout["width"] - LEFT - RIGHT, layout["height"] - TOP - BOTTOM, most_x, most_y)


def _axes(plot: Plot, layout: Mapping[str, Any]) -> Iterator[str]:
    """Yield both titles, and the y axis with its lines."""
    middle = TOP + plot.height / 2
    yield _text(LEFT + plot.width / 2, layout["height"] - 8, layout["xaxis"]["title"]["text"])
    title = escape(layout["yaxis"]["title"]["text"])
    yield f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{title}</text>'
    for value in ticks(plot.most_y):
        y = plot.y(value)
        yield f'<line x1="{LEFT}" x2="{LEFT + plot.width:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        yield _text(LEFT - 8, y + 4, _label(value, layout["yaxis"]), "end")


def _legend(traces: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    x = LEFT
    for trace in traces:
        for paint in _paints(trace):
            yield f'<rect x="{x}" y="8" width="14" height="12" fill="{paint}"/>'
        yield _text(x + 20, 18, trace["name"], "start")
        x += 50 + 8 * len(trace["name"])


def _paints(trace: Mapping[str, Any]) -> list[str]:
    """Return the fills of a bar, bottom to top: its colour, and the hatch if it has a pattern."""
    marker = trace["marker"]
    return [escape(marker["color"]), *(["url(#hatch)"] if "pattern" in marker else [])]


def _label(value: float, axis: Mapping[str, Any]) -> str:
    return f"{value:.0%}" if axis.get("tickformat") == ".0%" else f"{value:.3g}"


def _text(x: float, y: float, words: str, anchor: str = "middle", fill: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'


def _svg(layout: Mapping[str, Any], parts: Sequence[str]) -> str:
    width, height = layout["width"], layout["height"]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{INK}"><defs>{HATCH}'
        '<rect width="2" height="6" fill="#0008"/></pattern></defs>' + "".join(parts) + "</svg>"
    )
