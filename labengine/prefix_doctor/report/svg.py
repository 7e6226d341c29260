"""A picture as a small SVG without scripts; its text takes the page's colour."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count, pairwise

from labengine.prefix_doctor.report.columns import width_of
from labengine.prefix_doctor.report.pictures import Picture, Series

WIDTH, HEIGHT = 440, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 30, 44
INNER = WIDTH - LEFT - RIGHT
FLOOR = HEIGHT - BOTTOM
CHARACTER = 6.2
"""Pixels that a character of a label takes at most."""


def svg_of(picture: Picture) -> str:
    """Return the SVG element."""
    top = _round_top(max((value or 0 for one in picture.series for value in one.values), default=0))
    parts = [*_grid(picture, top), *_labels(picture), *_legend(picture)]
    for number, one in enumerate(picture.series):
        parts += _bars(picture, one, number, top) if picture.is_bars else _line(picture, one, top)
    look = (
        f'fill="currentColor" font-size="11" font-family="system-ui, sans-serif" style="width:100%;max-width:{WIDTH}px"'
    )
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(picture.title)}" {look}>'
    return f"{head}{''.join(parts)}</svg>"


def _round_top(most: float) -> float:
    """Return the smallest round number that is at least `most`."""
    powers = (10.0**power for power in count(-3))
    return next(size * power for power in powers for size in (1, 2, 4, 6, 8) if size * power >= most)


def _y(value: float, top: float) -> float:
    return FLOOR - (FLOOR - TOP) * value / top


def _x(picture: Picture, place: float) -> float:
    return LEFT + INNER * (place + 0.5) / len(picture.labels)


def _grid(picture: Picture, top: float) -> Iterator[str]:
    for quarter in range(5):
        y = _y(quarter, 4)
        yield f'<path d="M{LEFT} {y:.1f}h{INNER}" stroke="currentColor" stroke-opacity=".2"/>'
        yield _text(LEFT - 6, y + 4, picture.words(top * quarter / 4).replace(".0 ", " "), "end")


def _labels(picture: Picture) -> Iterator[str]:
    """Yield the title of the x axis, and as many of its labels as fit."""
    yield _text(LEFT + INNER / 2, HEIGHT - 6, picture.x_title)
    widest = CHARACTER * (max(map(width_of, picture.labels)) + 1)
    every = -(-int(widest * len(picture.labels)) // INNER)
    for place, label in enumerate(picture.labels):
        if place % every == 0:
            yield _text(_x(picture, place), FLOOR + 16, label)


def _legend(picture: Picture) -> Iterator[str]:
    x = float(LEFT)
    for one in picture.series:
        yield f'<path d="M{x:.0f} 14h20" {_stroke(one)}/>' if not picture.is_bars else _box(x, 8, 20, 12, one)
        yield _text(x + 25, 18, one.name, "start")
        x += 40 + CHARACTER * width_of(one.name)


def _line(picture: Picture, one: Series, top: float) -> Iterator[str]:
    points = [None if v is None else (_x(picture, place), _y(v, top)) for place, v in enumerate(one.values)]
    for left, right in pairwise(points):
        if left and right:
            yield f'<path d="M{left[0]:.1f} {left[1]:.1f}L{right[0]:.1f} {right[1]:.1f}" {_stroke(one)}/>'
    for point, value, label in zip(points, one.values, picture.labels, strict=True):
        if point:
            title = f"<title>{escape(f'{label}: {one.name} {picture.words(value)}')}</title>"
            yield f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3" fill="{one.colour}">{title}</circle>'


def _bars(picture: Picture, one: Series, number: int, top: float) -> Iterator[str]:
    width = INNER / len(picture.labels) * 0.8 / len(picture.series)
    for place, value in enumerate(one.values):
        x = _x(picture, place) + width * (number - len(picture.series) / 2)
        y = _y(value or 0, top)
        yield _box(x, y, width, FLOOR - y, one)


def _box(x: float, y: float, width: float, height: float, one: Series) -> str:
    """Return a bar; that of a second series is an outline with a light filling."""
    look = f'stroke="{one.colour}" stroke-dasharray="3 2" fill-opacity=".35"' if one.is_second else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{one.colour}" {look}/>'


def _stroke(one: Series) -> str:
    dashes = ' stroke-dasharray="6 4"' if one.is_second else ""
    return f'fill="none" stroke="{one.colour}" stroke-width="2"{dashes}'


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
