"""The browser's own fold: at every moment it shows what the Python scene shows, whichever way it moved there."""

from __future__ import annotations

import json
from random import Random

import pytest

from damaged_streams import damaged
from grounds import ALL_GROUNDS, Ground
from labengine import events as ev
from widgets.browser.model.model_page import ModelPage
from widgets.browser.model.model_reference import checksum, cores, difference, events_of, payload, states

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


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_every_moment_is_as_in_python(ground: Ground, page: ModelPage) -> None:
    recorded = [events_of(ground, seed, MAX_EVENTS) for seed in range(NUM_SEEDS)]
    sums = [[checksum(state) for state in states(events)] for events in recorded]
    runs = [[payload(events), sums[i], i] for i, events in enumerate(recorded)]
    for events, wrong in zip(recorded, page.evaluate(WALK, runs), strict=True):
        assert wrong is None, difference(events, wrong)


DAMAGED = """
(runs) => runs.map(([payload, sums]) => {
  const recording = model.Recording.full(payload), scene = recording.sceneAt(0);
  for (const moment of model.range(0, recording.end)) {
    recording.move(scene, moment);
    const text = model.written(scene, model.core);
    if (model.checksum(text) !== sums[moment]) return { moment, text };
  }
  return null;
})
"""


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_both_folds_make_the_same_of_events_that_cannot_be(ground: Ground, page: ModelPage) -> None:
    recorded = [damaged(events_of(ground, seed, MAX_EVENTS), Random(seed)) for seed in range(NUM_SEEDS)]
    runs = [[payload(events), [checksum(core) for core in cores(events)]] for events in recorded]
    for events, wrong in zip(recorded, page.evaluate(DAMAGED, runs), strict=True):
        assert wrong is None, both(events, **wrong)


def both(events: list[ev.Event], moment: int, text: str) -> str:
    """What the two folds make of the moment, for a failing test."""
    state = json.dumps(list(cores(events[:moment]))[-1])
    return f"after {events[moment - 1]}\nPython:  {state}\nbrowser: {text}"
