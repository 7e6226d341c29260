"""A figure's content as text and as an SVG, where no figure is drawn.

plotly is imported in the test: it takes each process that only collects a second.
"""

from __future__ import annotations


def test_small_bars() -> None:
    from labengine_widgets.pictures.plots import sparkline, words_svg

    assert sparkline([0, 1, 2, 4]) == "▁▃▅█" and sparkline([]) == "" and sparkline([0.0]) == "▁"
    assert len(sparkline([float(i) for i in range(1000)])) == 40
    assert words_svg("a < b").count("&lt;") == 1
