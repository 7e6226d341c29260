"""The pictures of a report, as data that both SVG and plotly draw: lines or bars over named places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from labengine.prefix_doctor.report.report import Ages, Curve, Report
from labengine.prefix_doctor.report.words import CURVE_TITLES, duration, is_flat, percent, value_words

GREEN, BLUE, ORANGE = "#2a9d6f", "#3d85c6", "#d9622b"
"""Colours that people of all colour vision can tell apart, on white and on black; dashes and hatches repeat them."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or the bars of one colour. is_second: dashed, or hatched."""

    name: str
    values: tuple[float | None, ...]
    colour: str
    is_second: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture. labels: the places on the x axis. unit: of the values."""

    title: str
    x_title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: Literal["share", "seconds", "number"] = "share"
    is_bars: bool = False

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The numbers as a table, its heads first."""
        values = zip(*(one.values for one in self.series), strict=True)
        cells = [(label, *map(self.words, row)) for label, row in zip(self.labels, values, strict=True)]
        return [(self.x_title, *(one.name for one in self.series)), *cells]

    def words(self, value: float | None) -> str:
        """Return a value with its unit; a dash for None."""
        if value is None:
            return "-"
        return {"share": percent, "seconds": duration}.get(self.unit, "{:,.0f}".format)(value)

    def plotly(self) -> dict[str, Any]:
        """Return the figure's data and layout; colours of text and grid come from the page's style sheet."""
        number_format = {"share": {"tickformat": ".0%"}, "seconds": {"ticksuffix": " s"}}.get(self.unit, {})
        return {
            "data": [self._trace(one) for one in self.series],
            "layout": {
                "height": 260,
                "margin": {"l": 52, "r": 12, "t": 34, "b": 46},
                "paper_bgcolor": "rgba(0,0,0,0)",
                "plot_bgcolor": "rgba(0,0,0,0)",
                "xaxis": {
                    "type": "category",
                    "title": {"text": self.x_title},
                    "nticks": 6,
                    "tickangle": 0,
                    "fixedrange": True,
                },
                "yaxis": {"rangemode": "tozero", **number_format, "fixedrange": True},
                "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
                "showlegend": True,
                "hovermode": "x unified",
                "barmode": "group",
            },
        }

    def _trace(self, one: Series) -> dict[str, Any]:
        shared = {"name": one.name, "x": self.labels, "y": one.values, "text": [*map(self.words, one.values)]}
        shared["hovertemplate"] = "%{text}"
        if self.is_bars:
            pattern = {"shape": "/" if one.is_second else "", "solidity": 0.5}
            return {
                **shared,
                "type": "bar",
                "textposition": "none",
                "marker": {"color": one.colour, "pattern": pattern},
            }
        line = {"color": one.colour, "width": 2, "dash": "dash" if one.is_second else "solid"}
        return {**shared, "type": "scatter", "mode": "lines+markers", "line": line, "marker": {"size": 7}}


def pictures_of(report: Report) -> list[Picture]:
    """Return all pictures for which the report has data."""
    found = [picture for curve in report.curves for picture in _curve(curve)]
    found += _over_time(report)
    return found + ([_ages(report.ages)] if report.ages and (report.ages.hit or report.ages.evicted) else [])


def _curve(curve: Curve) -> Iterator[Picture]:
    if len(curve.points) < 2 or is_flat(curve):
        return
    labels = tuple(value_words(curve, one.value) for one in curve.points)
    title, runs = CURVE_TITLES[curve.name], [one.figures for one in curve.points]
    rates = [Series("hit rate", tuple(one.hit_rate for one in runs), GREEN)]
    if any(one.bound_hit_rate is not None for one in curve.points):
        bounds = tuple(one.bound_hit_rate for one in curve.points)
        rates.append(Series("best possible (Belady's bound)", bounds, BLUE, True))
    yield Picture(title, curve.unit, labels, tuple(rates))
    if any(one.ttft_p95 is not None for one in runs):
        p50 = Series("p50", tuple(one.ttft_p50 for one in runs), BLUE)
        p95 = Series("p95", tuple(one.ttft_p95 for one in runs), ORANGE, True)
        yield Picture(f"{title}: time to first token", curve.unit, labels, (p50, p95), "seconds")


def _over_time(report: Report) -> Iterator[Picture]:
    spans = report.over_time
    if len(spans) < 2:
        return
    is_time = report.over_time_unit == "seconds"
    labels = tuple(duration(one.start) if is_time else f"{one.start:,.0f}" for one in spans)
    hit = tuple(one.num_hit / one.num_tokens if one.num_tokens else None for one in spans)
    lost = tuple(one.num_lost / one.num_tokens if one.num_tokens else None for one in spans)
    series = Series("hit", hit, GREEN), Series("computed again", lost, ORANGE, True)
    yield Picture("Shares of the prompt tokens over time", "since the start" if is_time else "prompt", labels, series)


def _ages(ages: Ages) -> Picture:
    hit, evicted = dict(ages.hit), dict(ages.evicted)
    bounds = sorted({*hit, *evicted})
    is_blocks = ages.unit == "blocks"
    series = (
        Series("hit", tuple(hit.get(bound, 0) for bound in bounds), GREEN),
        Series("evicted before", tuple(evicted.get(bound, 0) for bound in bounds), ORANGE, True),
    )
    return Picture(
        "Tokens by the age of their content when it is wanted again",
        f"{'blocks written' if is_blocks else 'time'} since its last use",
        tuple(f"< {bound:,.0f}" if is_blocks else f"< {duration(bound)}" for bound in bounds),
        series,
        "number",
        is_bars=True,
    )
