"""Charts of a run in plotly: blocks in use, hit rate, throughput and step time, updated while the lab runs."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labengine import events as ev
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.system.threads import Cancellable, start_timer
from labengine_widgets.pictures.plots import BLUE, GREEN, ORANGE, PlotWidget, sparkline, template
from labengine_widgets.pictures.series import StepFigures, StepSeries
from labengine_widgets.view_source import ViewSource

PERIOD = 0.5
"""Seconds between two updates, at least."""

MAX_POINTS = 1000
"""Maximum number of points of a line; with more steps, each point shows the maximum of neighbouring steps."""

SMOOTHED = 8
"""Number of steps over which tokens per second are averaged."""

TITLES = ("Blocks in use", "Prompt tokens found in the cache", "Tokens per second", "Step time")


def charts(source: ViewSource | Timeline) -> Charts:
    """Return a figure that follows a lab or an opened trace until `close()`; for a bare recording, a fixed figure."""
    return Charts(source)


class Charts(PlotWidget):
    """Four charts over the steps. Listens for the ends of steps, and draws at most twice a second.

    After a click on a step of a live lab, the lab's views show the end of that step.
    """

    def __init__(self, source: ViewSource | Timeline) -> None:
        hooks, timeline = _heard(source)
        self._series = StepSeries(timeline)
        self._series.update()
        super().__init__(drawn(self._series, str(getattr(source, "title", ""))))
        self._timer: Cancellable | None = None
        self._lock = Lock()
        self._is_closed = False
        own = timeline if hooks is not None and timeline is not getattr(source, "timeline", timeline) else None
        self._subscriptions = [] if own is None or hooks is None else [hooks.subscribe(own.record)]
        if hooks is not None:
            self._subscriptions.append(hooks.subscribe(self._hear, ev.StepEnded, ev.StepRolledBack, ev.EngineStarted))
        if not isinstance(source, Timeline) and source.is_live and own is None:
            for trace in self.data:
                trace.on_click(lambda _trace, points, _state: _go_to(source, points.xs))

    def words(self) -> str:
        """Each chart as text: a row of small bars."""
        return figure_text(self._series, str(self.layout.title.text or ""))

    def settle(self) -> None:
        """Draw the newest steps and stop listening; the figure stays. A second call has no effect."""
        self._end_listening()
        if not self._is_closed:
            self.refresh()

    def close(self) -> None:
        """Stop listening and remove the figure; a second call has no effect."""
        self._is_closed = True
        self._end_listening()
        super().close()

    def _end_listening(self) -> None:
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions = []
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def refresh(self) -> None:
        """Draw new steps."""
        with self._lock:
            self._timer = None
            if self._is_closed or not self._series.update():
                return
            lines = curves(self._series)
            with self.batch_update():
                for trace, (x, y) in zip(self.data, lines, strict=True):
                    trace.x, trace.y = x, y
                self.layout.yaxis.range = [0, max(1, self._series.num_blocks)]

    def _hear(self, _event: ev.Event) -> None:
        """Start a timer that redraws, unless one is running. Called on the engine's thread, so it does no more."""
        with self._lock:
            if self._timer is None and not self._is_closed:
                self._timer = start_timer(self.refresh, PERIOD)


def _go_to(view_source: ViewSource, steps: Sequence[float]) -> None:
    """Show the end of a step in the lab's views. Ignored for a step that the recording has dropped."""
    if steps:
        view_source.post("goto", step=int(steps[0]))


def _heard(source: ViewSource | Timeline) -> tuple[Hooks | None, Timeline]:
    if isinstance(source, Timeline):
        return None, source
    return source.hooks, source.timeline or Timeline.starting_at(source.fold())


def drawn(series: StepSeries, title: str) -> go.Figure:
    """Return the figure of the present state."""
    figure = make_subplots(2, 2, subplot_titles=TITLES, horizontal_spacing=0.09, vertical_spacing=0.2)
    looks = [
        (1, 1, "used at the step's end", {"color": BLUE, "width": 2, "shape": "hv"}),
        (1, 1, "used at most within it", {"color": ORANGE, "width": 1, "dash": "dot", "shape": "hv"}),
        (1, 2, "hit rate", {"color": BLUE, "width": 2}),
        (2, 1, "generated", {"color": BLUE, "width": 2}),
        (2, 1, "prefilled", {"color": GREEN, "width": 1, "dash": "dash"}),
        (2, 2, "step time", {"color": BLUE, "width": 1.5}),
    ]
    for (row, column, name, line), (x, y) in zip(looks, curves(series), strict=True):
        trace = go.Scatter(x=x, y=y, mode="lines", name=name, line=line, showlegend=name in LEGENDS)
        figure.add_trace(trace, row, column)
    figure.update_layout(
        title={"text": readable(title)}, template=template(), height=460, legend={"orientation": "h", "y": -0.2}
    )
    figure.update_xaxes(title_text="step", row=2)
    figure.update_yaxes(range=[0, max(1, series.num_blocks)], row=1, col=1)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=2)
    figure.update_yaxes(ticksuffix=" ms", separatethousands=True, exponentformat="none", row=2, col=2)
    return figure


LEGENDS = {"used at the step's end", "used at most within it", "generated", "prefilled"}

Curve = tuple[list[int], list[float | None]]


def curves(series: StepSeries) -> list[Curve]:
    """Return steps and values of each line, in the figure's order; step times in milliseconds."""
    steps = series.steps
    return [
        thinned(steps, [float(step.used) for step in steps]),
        thinned(steps, [float(step.peak) for step in steps]),
        thinned(steps, [step.hit_rate for step in steps]),
        thinned(steps, per_second(steps, [step.sampled for step in steps])),
        thinned(steps, per_second(steps, [step.prefill for step in steps])),
        thinned(steps, [None if step.seconds is None else 1000 * step.seconds for step in steps]),
    ]


def per_second(steps: Sequence[StepFigures], tokens: Sequence[int]) -> list[float | None]:
    """Return tokens per second over the last few steps; None where the time is not known."""
    rates: list[float | None] = []
    for i in range(len(steps)):
        few = range(max(0, i + 1 - SMOOTHED), i + 1)
        seconds = [steps[j].seconds for j in few]
        known = [second for second in seconds if second is not None]
        total = sum(known)
        rates.append(sum(tokens[j] for j in few) / total if len(known) == len(few) and total > 0 else None)
    return rates


def thinned(steps: Sequence[StepFigures], values: Sequence[float | None]) -> Curve:
    """Reduce a line to MAX_POINTS points; of neighbours the highest stays, so that no peak is lost."""
    every = -(-len(steps) // MAX_POINTS) or 1
    x: list[int] = []
    y: list[float | None] = []
    for start in range(0, len(steps), every):
        known = [(value, i) for i, value in enumerate(values[start : start + every], start) if value is not None]
        high, at = max(known, key=lambda pair: pair[0]) if known else (None, start)
        x.append(steps[at].step)
        y.append(high)
    return x, y


def figure_text(series: StepSeries, title: str) -> str:
    """Return the charts as text."""
    steps = series.steps
    if not steps:
        return f"{title}\nno step yet".strip()
    last, rates = steps[-1], per_second(steps, [step.sampled for step in steps])
    rows: list[tuple[str, list[float], str]] = [
        ("blocks in use", [float(step.used) for step in steps], f"{last.used} of {series.num_blocks}"),
        ("hit rate", [step.hit_rate for step in steps], f"{last.hit_rate:.0%}"),
    ]
    if rates[-1] is not None and last.seconds is not None:
        rows.append(("tokens per second", [rate or 0.0 for rate in rates], f"{rates[-1]:,.0f}"))
        rows.append(("step time", [step.seconds or 0.0 for step in steps], f"{1000 * last.seconds:.1f} ms"))
    body = [f"{name:<18}{sparkline(values)} {now}" for name, values, now in rows]
    return "\n".join([*([title] if title else []), f"steps {steps[0].step} to {last.step}", *body])


def as_figure(source: Any, title: str = "") -> go.Figure:
    """Return the charts as a fixed plotly figure, for `write_html(..., include_plotlyjs=True)` and reports."""
    series = StepSeries(_heard(source)[1])
    series.update()
    return drawn(series, title or getattr(source, "title", ""))
