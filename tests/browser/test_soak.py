"""Half a minute of running with the dashboard open: nothing grows. benchmarks/soak.py is the same for ten minutes."""

from __future__ import annotations

from browser.lab_page import LabPage
from browser.wear import Sample, Wear
from labengine_widgets.feed import PERIOD

STRETCH = 7.5
"""Seconds of a stretch; four of them, after one to warm up."""


def test_nothing_grows_while_a_lab_runs_with_its_dashboard_open(lab_page: LabPage) -> None:
    wear = Wear(lab_page, record=3_000)
    first, *later = [wear.run(STRETCH) for _ in range(5)]
    last = later[-1]
    assert last.step > first.step + 100 and last.messages > first.messages + 50, "it did not run"
    steady(first, last)
    assert last.messages - first.messages <= 4 * (STRETCH + 2) / PERIOD, "more messages a second than were to be"


def steady(first: Sample, last: Sample) -> None:
    """What is counted stays as it was; what is measured stays within what a garbage collector leaves lying."""
    assert (last.comms, last.threads, last.documents) == (first.comms, first.threads, first.documents)
    assert last.listeners <= first.listeners + 20
    assert last.nodes <= first.nodes * 1.25 + 500
    assert last.dashboard <= first.dashboard * 1.25 + 200
    assert last.heap <= first.heap * 1.2 + 8
    assert last.rss <= first.rss * 1.1 + 15
