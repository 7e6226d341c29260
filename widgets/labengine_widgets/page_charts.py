"""The charts of a run below its page: plotly's figures, with plotly itself, so that nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence

from plotly.offline import get_plotlyjs

from labengine_widgets.charts import as_figure
from labengine_widgets.plotted import CSS
from labengine_widgets.view_source import ViewSource

_DRAW = """
for (const place of document.querySelectorAll(".labengine-plot")) {
  const { data, layout } = JSON.parse(place.previousElementSibling.textContent);
  Plotly.newPlot(place, data, { ...layout, autosize: true }, { responsive: true, displaylogo: false });
}
"""


def chart_section(view_sources: Sequence[tuple[str, ViewSource]]) -> tuple[str, list[str]]:
    """One figure per recording, under its name: markup, and the scripts that draw it."""
    figures = (as_figure(source, name).to_json() for name, source in view_sources)
    places = (
        f'<script type="application/json">{_inert_json(figure)}</script><div class="labengine-plot"></div>'
        for figure in figures
    )
    return f'<style>{CSS}</style><section aria-label="charts">{"".join(places)}</section>', [get_plotlyjs(), _DRAW]


def _inert_json(document: str) -> str:
    """The same JSON, with nothing in it that markup could begin with."""
    return document.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
