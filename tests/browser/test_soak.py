"""Nine hundred steps with the dashboard open: nothing grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from browser.lab_page import LabPage
from browser.lab_pages import LabPages
from browser.wear import Sample, Wear
from labengine_widgets.feed.worker import PERIOD

NUM_STEPS = 900
"""After a quarter of them to warm up."""

RATE = 100
"""Steps a second at most: about two of them for each message."""

NUM_POLLS = 2
"""JupyterLab's second look at its workspaces, ten seconds after the first, adds a document and its listeners."""


@pytest.fixture
def new_page(lab_pages: LabPages, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A page without other tests' notebooks in its memory."""
    with lab_pages.lent(request, is_new=True) as lab:
        yield lab


@pytest.mark.sweep
def test_nothing_grows_while_a_lab_runs_with_its_dashboard_open(new_page: LabPage) -> None:
    finished: list[str] = []
    new_page.page.on("requestfinished", lambda request: finished.append(urlsplit(request.url).path))
    wear = Wear(new_page, record=3_000)
    wear.run(NUM_STEPS // 4, RATE)
    new_page.wait_for("all of JupyterLab's elements", lambda: finished.count("/lab/api/workspaces") >= NUM_POLLS)
    first, begun = wear.sample(), time.monotonic()
    last = wear.run(NUM_STEPS, RATE)
    assert last.step >= first.step + NUM_STEPS and last.messages >= first.messages + NUM_STEPS // 4, "it did not run"
    steady(first, last)
    seconds = time.monotonic() - begun
    assert last.messages - first.messages <= seconds / PERIOD + 4, "more messages a second than were to be"


def steady(first: Sample, last: Sample) -> None:
    """What is counted stays as it was; what is measured stays within what a garbage collector leaves lying."""
    assert (last.comms, last.threads, last.documents) == (first.comms, first.threads, first.documents)
    assert last.listeners <= first.listeners + 20
    assert last.nodes <= first.nodes * 1.25 + 500
    assert last.dashboard <= first.dashboard * 1.25 + 200
    assert last.heap <= first.heap * 1.2 + 8
    assert last.rss <= first.rss * 1.1 + 15
