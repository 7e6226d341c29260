"""The style of plotly figures, for light and dark themes, and their text form where no figure is drawn."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from labengine_widgets.front_end import display_with_picture, keep_by_owner

BLUE, ORANGE, GREEN = "#3d85c6", "#c97a00", "#2a9d6f"
"""Colours that people of all colour vision can distinguish, on white and on black; dashes repeat the distinction."""

INK, GRID = "#7a7a7a", "rgba(128, 128, 128, 0.28)"
"""A grey readable on white and on black, for figures without a theme's style sheet."""

PICTURE = "plot"
"""The token of all figures' saved pictures: the figure drawn below hides the picture above it."""

CSS = """
.labengine-plot { width: 100%; --le-plot-ink: var(--jp-ui-font-color1, var(--vscode-editor-foreground, currentColor)); }
.labengine-plot .main-svg text { fill: var(--le-plot-ink) !important; }
.labengine-plot .hoverlayer text { fill: #fff !important; }
.labengine-plot .hoverlayer path { fill: #333 !important; stroke: #888 !important; }
.labengine-plot .gridlayer path { stroke: var(--jp-border-color2, rgba(128, 128, 128, 0.3)) !important; }
.labengine-plot .modebar-btn path { fill: var(--le-plot-ink) !important; }
.jp-OutputArea-child:has([data-labengine-picture="plot"]):has(+ .jp-OutputArea-child .js-plotly-plot) { display: none; }
"""
"""CSS for a notebook: text and grids follow the theme, also when it changes."""


def template() -> go.layout.Template:
    """Return the plotly template: transparent background, grey text and grids, the colours above."""
    axis = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID, "automargin": True}
    return go.layout.Template(
        layout={
            "paper_bgcolor": "rgba(0, 0, 0, 0)",
            "plot_bgcolor": "rgba(0, 0, 0, 0)",
            "font": {"color": INK, "size": 12},
            "colorway": [BLUE, ORANGE, GREEN],
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"bgcolor": "#333", "font": {"color": "#fff"}},
            "margin": {"l": 56, "r": 16, "t": 56, "b": 40},
        }
    )


FITTED = """const labengineFitted = () => {
  const made = ORIGINAL();
  const render = (context) => {
    const end = made.render(context);
    let width = 0;
    const fit = ([{ contentRect }]) => {
      if (contentRect.width === width) return;
      width = contentRect.width;
      window.dispatchEvent(new Event("resize"));
    };
    const sizes = new ResizeObserver(fit);
    sizes.observe(context.el);
    return () => {
      sizes.disconnect();
      if (end) end();
    };
  };
  return { ...made, render };
};
export { labengineFitted as default };
"""
"""Patch of plotly's browser half: it draws before its width is known, and listens only to the window's size."""


@cache
def fitted_esm() -> str:
    """Return plotly's browser half, changed to fit the cell's width; unchanged if its code is not as expected."""
    source = str(go.FigureWidget._esm)
    exports = list(_EXPORT.finditer(source))
    if not exports:
        return source
    last = exports[-1]
    return source[: last.start()] + FITTED.replace("ORIGINAL", last[1]) + source[last.end() :]


_EXPORT = re.compile(r"export\s*\{[^}]*?([\w$]+) as default\s*\};?")


class PlotWidget(go.FigureWidget):  # type: ignore[misc]
    """A plotly widget that follows the theme, with its content as text for a front end that draws nothing."""

    _esm = fitted_esm()
    _css = CSS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_class("labengine-plot")
        self._config = {"responsive": True, "displaylogo": False}

    def open(self) -> None:
        """Open the connection to a front end, if it is not open."""
        super().open()
        keep_by_owner(self)

    def words(self) -> str:
        """Return the figure's content as text, for text/plain."""
        return str(self.layout.title.text or "a figure")

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(*args, **kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        if data is None:
            return None
        words = self.words()
        return {**data, "text/plain": words, "image/svg+xml": words_svg(words)}, metadata

    def _ipython_display_(self) -> None:
        bundle = self._repr_mimebundle_()
        if bundle is not None:
            display_with_picture(bundle, PICTURE)


def words_svg(words: str) -> str:
    """Return lines of text as an SVG, for a page that shows neither widgets nor scripts."""
    lines = words.splitlines()
    width, height = 16 + 8 * max(map(len, lines), default=1), 16 + 18 * len(lines)
    rows = "".join(f'<tspan x="8" y="{20 + 18 * i}">{escape(line)}</tspan>' for i, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><text xml:space="preserve" font-family="monospace" font-size="13" fill="{INK}">{rows}</text></svg>'
    )


def sparkline(values: list[float]) -> str:
    """Return values as a row of at most 40 small bars, each the maximum of a stretch."""
    if not values:
        return ""
    num_bars = min(40, len(values))
    ends = [len(values) * (i + 1) // num_bars for i in range(num_bars)]
    cuts = [values[start:end] for start, end in pairwise([0, *ends])]
    highs = [max(cut) for cut in cuts]
    most = max(highs) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, round(7 * value / most))] for value in highs)
