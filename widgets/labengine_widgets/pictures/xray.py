"""The attention X-ray as a plotly figure: layers against blocks, one head or the mean of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Protocol

import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from labengine.record.wording import block_name, readable
from labengine_widgets.pictures.plots import BLUE, GRID, INK, PlotWidget, sparkline, template

COLORS = "Cividis"
"""A colour scale of even lightness, equally readable with every colour vision."""

MAX_TEXT = 48
"""Maximum number of characters shown of a block's text."""


class AttentionByBlock(Protocol):
    """The engine's result (labengine.engine.xray.BlockAttention)."""

    @property
    def position(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def mass(self) -> NDArray[Any]: ...
    @property
    def layers(self) -> tuple[int, ...]: ...
    @property
    def block_ids(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def layer_groups(self) -> tuple[int, ...]: ...
    @property
    def windows(self) -> tuple[int | None, ...]: ...
    @property
    def source(self) -> str: ...


class XRay(PlotWidget):
    """The live figure. A click on a cell selects its block in every view of the lab."""

    def __init__(
        self,
        attention: AttentionByBlock,
        texts: Sequence[str],
        title: str,
        select: Callable[[int], object] | None = None,
    ) -> None:
        self._attention, self._texts, self._select = attention, texts, select
        super().__init__(drawn(attention, texts, title))
        for trace in self.data:
            trace.on_click(self._select_clicked)

    def words(self) -> str:
        """Return the blocks with the most attention, as text."""
        return figure_text(self._attention, self._texts, str(self.layout.title.text))

    def _select_clicked(self, trace: Any, points: Any, _state: Any) -> None:
        if self._select is None or not points.point_inds:
            return
        place = points.point_inds[0]
        layer, column = place if isinstance(place, tuple | list) else (0, place)
        block_id = self._attention.block_ids[self._attention.layer_groups[layer]][column]
        if block_id >= 0:
            self._select(block_id)


def drawn(attention: AttentionByBlock, texts: Sequence[str], title: str) -> go.Figure:
    """Return the figure: above, each block's mean over layers and heads; below, the layers. texts: of the tokens."""
    figure = make_subplots(2, 1, row_heights=[0.22, 0.78], shared_xaxes=True, vertical_spacing=0.04)
    labels, columns = axis_labels(attention, texts), list(range(attention.mass.shape[2]))
    overall = attention.mass.mean((0, 1))
    spoken = [block_text(attention, texts, i) for i in columns]
    hover = "%{customdata}<br>%{y:.1%} of the attention, all layers and heads<extra></extra>"
    bars = go.Bar(
        x=columns,
        y=rounded(overall),
        marker={"color": BLUE, "line": {"color": INK, "width": 1}},
        customdata=spoken,
        hovertemplate=hover,
        showlegend=False,
    )
    figure.add_trace(bars, 1, 1)
    choices = [("mean", attention.mass.mean(1))]
    choices += [(str(head), attention.mass[:, head]) for head in range(attention.mass.shape[1])]
    figure.add_trace(heatmap(attention, choices[0][1], spoken), 2, 1)
    figure.update_layout(
        title={"text": title, "font": {"size": 14}},
        template=template(),
        height=220 + 14 * max(14, len(attention.mass)),
        sliders=[head_slider([(name, shown(attention, mass)) for name, mass in choices])],
        margin={"b": 110},
        bargap=0.15,
    )
    every = -(-len(columns) // 24)
    figure.update_xaxes(tickmode="array", tickvals=columns[::every], ticktext=labels[::every], row=2)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero", row=1)
    rows = range(0, len(attention.layers), max(1, len(attention.layers) // 10))
    names = [str(attention.layers[row]) for row in rows]
    figure.update_yaxes(title_text="layer", autorange="reversed", tickvals=list(rows), ticktext=names, row=2)
    return figure


def heatmap(attention: AttentionByBlock, mass: NDArray[Any], spoken: Sequence[str]) -> go.Heatmap:
    """Return the heat map [layers][blocks], white outside a layer's window."""
    notes = [
        [cell_note(attention, layer, column, text) for column, text in enumerate(spoken)]
        for layer in range(len(attention.mass))
    ]
    return go.Heatmap(
        z=shown(attention, mass),
        zmin=0,
        zmax=1,
        colorscale=COLORS,
        xgap=1,
        ygap=1,
        hoverongaps=False,
        text=notes,
        hovertemplate="%{text}<br>%{z:.1%}<extra></extra>",
        colorbar={"tickformat": ".0%", "thickness": 12, "len": 0.7, "y": 0.4, "outlinecolor": GRID},
    )


def head_slider(choices: Sequence[tuple[str, list[list[float | None]]]]) -> dict[str, Any]:
    """Return a slider with one step per head; keys move it, too."""
    steps = [{"label": name, "method": "restyle", "args": [{"z": [mass]}, [1]]} for name, mass in choices]
    look = {"bgcolor": GRID, "bordercolor": INK, "activebgcolor": BLUE, "tickcolor": INK}
    return {"steps": steps, "currentvalue": {"prefix": "heads: "}, "pad": {"t": 46}, "len": 0.9, "x": 0.02, **look}


def shown(attention: AttentionByBlock, mass: NDArray[Any]) -> list[list[float | None]]:
    """Return attention [layers][blocks], rounded; None outside a layer's window."""
    rows: list[list[float | None]] = []
    for layer, row in enumerate(mass):
        first = first_column(attention, layer)
        rows.append([None if column < first else value for column, value in enumerate(rounded(row))])
    return rows


def first_column(attention: AttentionByBlock, layer: int) -> int:
    """Return the index of the first block that the layer reads."""
    window = attention.windows[attention.layer_groups[layer]]
    return 0 if window is None else max(0, attention.position - window + 1) // attention.block_size


def rounded(values: NDArray[Any]) -> list[float]:
    """Round to four digits, which is finer than the colours."""
    return [round(float(value), 4) for value in values]


def column_labels(attention: AttentionByBlock) -> list[str]:
    """Return block ids, or positions where several groups have blocks or the request no longer holds any."""
    size, columns = attention.block_size, range(attention.mass.shape[2])
    if len(attention.block_ids) == 1 and min(attention.block_ids[0], default=-1) >= 0:
        return [block_name(block_id) for block_id in attention.block_ids[0]]
    return [f"{i * size}–{min((i + 1) * size - 1, attention.position)}" for i in columns]


def axis_labels(attention: AttentionByBlock, texts: Sequence[str]) -> list[str]:
    """Return the column labels, with the blocks' first words below where there is room."""
    labels = column_labels(attention)
    if len(labels) > 8:
        return labels
    room = 110 // len(labels)
    size = attention.block_size
    return [
        f"{label}<br>{escape(readable(''.join(texts[i * size : (i + 1) * size]).strip(), room))}"
        for i, label in enumerate(labels)
    ]


def block_text(attention: AttentionByBlock, texts: Sequence[str], column: int) -> str:
    """Return the positions of a block's tokens and their text, escaped: it is untrusted."""
    size = attention.block_size
    start, end = column * size, min((column + 1) * size, attention.position + 1)
    text = readable("".join(texts[start:end]), MAX_TEXT)
    return f"positions {start} to {end - 1}: “{escape(text)}”"


def cell_note(attention: AttentionByBlock, layer: int, column: int, text: str) -> str:
    """Return the hover text of a cell: the block that a layer (a row of the figure) reads there."""
    block_id = attention.block_ids[attention.layer_groups[layer]][column]
    where = f"{block_name(block_id)}, {text}" if block_id >= 0 else text
    return f"layer {attention.layers[layer]} · {where}"


def figure_text(attention: AttentionByBlock, texts: Sequence[str], title: str) -> str:
    """Return the five blocks with the most attention over all layers and heads, as text."""
    overall, labels = attention.mass.mean((0, 1)), column_labels(attention)
    most = sorted(range(len(overall)), key=lambda i: -overall[i])[:5]
    rows = [f"{labels[i]:>9} {overall[i]:6.1%}  {_plain(texts, attention, i)}" for i in most]
    return "\n".join([title, f"blocks    {sparkline([float(value) for value in overall])}", *rows])


def _plain(texts: Sequence[str], attention: AttentionByBlock, column: int) -> str:
    size = attention.block_size
    return readable("".join(texts[column * size : min((column + 1) * size, attention.position + 1)]), MAX_TEXT)
