"""Recorded figures as small pictures: shares are heights, names are escaped, other figures are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tools.site.figure_svg import figure_svg, ticks

AXES: dict[str, Any] = {"xaxis": {"title": {"text": "x"}, "range": [0, 10]}, "yaxis": {"title": {"text": "y"}}}
SIZE = {"width": 400, "height": 284}


def test_stacked_bars_fill_the_height_in_proportion() -> None:
    bars = [
        {"type": "bar", "name": name, "x": ["a", "b"], "y": shares, "marker": {"color": color}}
        for name, shares, color in (("<in>", [0.75, 0.5], "#0072B2"), ("out", [0.25, 0.5], "#E69F00"))
    ]
    bars[1]["marker"] = {"color": "#E69F00", "pattern": {"shape": "/"}}
    drawn = figure_svg({"data": bars, "layout": {**SIZE, **AXES, "barmode": "stack"}})
    heights = re.findall(r'height="([\d.]+)" fill="(#\w+)"', drawn)[3:]  # after the hatch and the legend
    assert heights == [("150.0", "#0072B2"), ("50.0", "#E69F00"), ("100.0", "#0072B2"), ("100.0", "#E69F00")]
    assert "&lt;in&gt;" in drawn and "<in>" not in drawn
    assert drawn.count("url(#hatch)") == 3, "dashes repeat what the colours say"


def test_a_line_goes_through_its_points_and_names_them() -> None:
    line = {
        "type": "scatter",
        "x": [0, 5, 10],
        "y": [0, 4, 8],
        "text": ["first", "half", "end"],
        "line": {"color": "#0"},
    }
    drawn = figure_svg({"data": [line], "layout": {**SIZE, **AXES, "yaxis": {"title": {"text": "y"}, "range": [0, 8]}}})
    assert re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn) == [
        ("62.0", "234.0"),
        ("222.0", "134.0"),
        ("382.0", "34.0"),
    ]
    assert all(f">{name}</text>" in drawn for name in ("first", "half", "end"))


def test_what_it_cannot_draw_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no SVG for a figure with traces \['heatmap'\]"):
        figure_svg({"data": [{"type": "heatmap"}], "layout": {}})


@pytest.mark.parametrize(("most", "expected"), [(1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (14, [0, 2, 4, 6, 8, 10, 12, 14])])
def test_ticks_are_round(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(expected)
