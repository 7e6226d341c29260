"""The charts in plotly: figures of the steps held against the fold, alive while a lab runs, gone when closed.

plotly is imported in the tests that use it: it brings nbformat and JSON schemas, a second and more in each process that
only collects.
"""

from __future__ import annotations

import random
import threading

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.record.timeline import Timeline
from labengine_widgets.pictures.series import StepFigures, StepSeries
from waiting import wait_until
from widgets.fake_view_source import FakeViewSource
from widgets.story_219 import begin, merging_step, overwriting_step


@pytest.fixture(scope="module")
def events() -> list[ev.Event]:
    """Preemptions, shared prefixes, and a rolled-back step."""
    dice = random.Random(1)
    with Lab("simulated", num_blocks=14, block_size=4, max_num_seqs=4, max_num_batched_tokens=16) as lab:
        for _ in range(14):
            tail = [dice.randrange(100) for _ in range(dice.randrange(2, 20))]
            lab.add(token_ids=[*range(dice.choice([0, 8, 12])), *tail], max_tokens=dice.randrange(3, 18))
        lab.run()
        assert lab.timeline is not None
        events_so_far = list(lab.timeline.events())
    start, end = events_so_far.index(ev.StepStarted(9)), events_so_far.index(ev.StepEnded(9))
    return [*events_so_far[:end], ev.StepRolledBack(9, "KeyboardInterrupt"), *events_so_far[start:]]


def recorded(events: list[ev.Event], max_events: int = 100_000) -> Timeline:
    timeline = Timeline(max_events)
    for event in events:
        timeline.record(event)
    return timeline


def test_the_figures_are_those_of_the_fold(events: list[ev.Event]) -> None:
    timeline = recorded(events)
    series = StepSeries(timeline)
    assert series.update() and not series.update()
    assert [step.step for step in series.steps] == list(range(1, len(series.steps) + 1))
    for step in series.steps:
        start, end = timeline.step_moments(step.step)
        used = [timeline.state(moment).num_used_blocks for moment in range(start, end + 1)]
        assert (step.used, step.peak) == (used[-1], max(used)), step.step
        asked = [event for event in timeline.events(start, end) if isinstance(event, ev.RequestScheduled)]
        assert step.prefill == sum(event.num_tokens for event in asked if event.is_prefill)
        assert step.decode == sum(event.num_tokens for event in asked if not event.is_prefill)
        assert step.seconds == timeline.step_seconds[step.step]
    assert 0 < series.steps[-1].hit_rate < 1 and series.num_blocks == 14


def test_piece_by_piece_is_the_same_as_at_once(events: list[ev.Event]) -> None:
    timeline, complete = Timeline(), recorded(events)
    growing = StepSeries(timeline)
    for event in events:
        timeline.record(event)
        growing.update()
    at_once = StepSeries(complete)
    at_once.update()
    timeless = [[_without_time(step) for step in series.steps] for series in (growing, at_once)]
    assert timeless[0] == timeless[1]


def _without_time(step: StepFigures) -> tuple[object, ...]:
    return (step.step, step.used, step.peak, step.hit_rate, step.prefill, step.decode, step.sampled)


def test_a_recording_that_dropped_its_beginning_and_one_that_restarts(events: list[ev.Event]) -> None:
    timeline = recorded(events, max_events=400)
    assert timeline.num_dropped > 0
    series = StepSeries(timeline)
    series.update()
    used = {step.step: step.used for step in series.steps}
    last = max(used)
    assert used[last] == timeline.state(timeline.step_moments(last)[1]).num_used_blocks
    for event in [*begin(), *overwriting_step()]:
        timeline.record(event)
    series.update()
    assert [(step.step, step.used, step.peak) for step in series.steps] == [(1, 8, 8)] and series.num_blocks == 12


def test_long_runs_are_thinned_and_keep_their_peaks() -> None:
    from labengine_widgets.pictures.charts import MAX_POINTS, curves

    steps = [StepFigures(i, i % 7, 100 if i == 6777 else 0, 0.0, 0, 1, 1, 0.001) for i in range(10_000)]
    series = StepSeries(Timeline(), steps=steps)
    for x, y in curves(series):
        assert len(x) == len(y) <= MAX_POINTS
    x, y = curves(series)[1]
    assert (max(value for value in y if value is not None), x[y.index(100)]) == (100, 6777)


def test_it_follows_a_lab_and_leaves_nothing_behind() -> None:
    from labengine_widgets.pictures.charts import charts

    source = FakeViewSource(begin())
    before = threading.active_count()
    figure = charts(source)
    listeners = sum(map(len, source.hooks.values()))
    assert figure.words().endswith("no step yet") and len(figure.data[0].x) == 0
    source.say(merging_step())
    wait_until(lambda: figure.data[0].x, "the first step")
    assert (figure.data[0].y, figure.data[1].y) == ((5.0,), (8.0,))
    assert "blocks in use" in figure.words() and "5 of 12" in figure.words()
    source.say([ev.StepStarted(2), ev.StepEnded(2)])
    figure.close()
    figure.close()
    assert sum(map(len, source.hooks.values())) < listeners
    wait_until(lambda: threading.active_count() <= before, "the end of its thread")
    assert len(figure.data[0].x) == 1, "a closed figure draws no more"


def test_a_click_on_a_step_leads_the_views_there() -> None:
    from plotly.callbacks import InputDeviceState, Points

    from labengine_widgets.pictures.charts import charts

    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=4)
        lab.run()
        figure = charts(lab.view_source())
        figure.data[0]._dispatch_on_click(Points([1], [2], [2.0], trace_index=0), InputDeviceState())
        wait_until(lambda: lab.moment is not None, "the views to go to the step")
        assert lab.timeline is not None and lab.moment == lab.timeline.step_moments(2)[1]
        figure.close()


def test_a_lab_that_records_nothing_has_charts_from_now_on() -> None:
    from labengine_widgets.pictures.charts import charts

    with Lab("simulated", num_blocks=12, block_size=4, record=False) as lab:
        lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=3)
        lab.step()
        figure = charts(lab.view_source())
        lab.run()
        figure.refresh()
        assert figure.data[0].x == (2, 3)
        figure.close()


def test_the_bundle_says_it_in_words_too(events: list[ev.Event]) -> None:
    from labengine_widgets.pictures.charts import charts

    source = FakeViewSource(events)
    source.title = "<img src=x>"
    figure = charts(source)
    data, _ = figure._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].splitlines()[0] == "<img src=x>" and "hit rate" in data["text/plain"]
    assert "<img" not in data["image/svg+xml"] and "&lt;img" in data["image/svg+xml"]
    figure.close()


def test_an_opened_recording_needs_no_lab_and_the_page_no_network(events: list[ev.Event]) -> None:
    from labengine_widgets.pictures.charts import as_figure

    timeline = recorded(events)
    figure = as_figure(timeline, "a run")
    assert len(figure.data[0].x) == max(figure.data[0].x)
    page = figure.to_html(include_plotlyjs=True, full_html=True)
    assert 'src="http' not in page and "a run" in page


def test_small_bars() -> None:
    from labengine_widgets.pictures.plots import sparkline, words_svg

    assert sparkline([0, 1, 2, 4]) == "▁▃▅█" and sparkline([]) == "" and sparkline([0.0]) == "▁"
    assert len(sparkline([float(i) for i in range(1000)])) == 40
    assert words_svg("a < b").count("&lt;") == 1
