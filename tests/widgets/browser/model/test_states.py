"""The browser's own fold: at every moment it shows what the Python scene shows, whichever way it moved there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grounds import ALL_GROUNDS, Ground
from widgets.browser.model.model_page import ModelPage, model_page
from widgets.browser.model.model_reference import checksum, difference, events_of, payload, states

pytestmark = pytest.mark.browser

NUM_SEEDS = 4
MAX_EVENTS = 350

WALK = """
(runs) => runs.map(([payload, sums, seed]) => {
  const recording = model.Recording.full(payload), roll = model.dice(seed), end = recording.end;
  const seeks = Array.from({ length: 60 }, () => roll(end + 1));
  return model.walk(recording, sums, model.range(0, end)) ?? model.walk(recording, sums, model.range(end, 0))
    ?? model.walk(recording, sums, seeks);
})
"""


@pytest.fixture(scope="module")
def page() -> Iterator[ModelPage]:
    with model_page() as page:
        yield page


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_every_moment_is_as_in_python(ground: Ground, page: ModelPage) -> None:
    recorded = [events_of(ground, seed, MAX_EVENTS) for seed in range(NUM_SEEDS)]
    sums = [[checksum(state) for state in states(events)] for events in recorded]
    runs = [[payload(events), sums[i], i] for i, events in enumerate(recorded)]
    for events, wrong in zip(recorded, page.evaluate(WALK, runs), strict=True):
        assert wrong is None, difference(events, wrong)
