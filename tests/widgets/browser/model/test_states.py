"""The browser's own fold: at every moment it shows what the Python scene shows, whichever way it moved there."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import labengine
from damaged_streams import damaged
from differential import vllm_streams
from grounds import ALL_GROUNDS, Ground
from labengine import Lab
from labengine import events as ev
from labengine.config import GroupSpec
from labengine.core.proposer import FixedDrafts, NGram
from labengine.record.fold import Fold
from recorded_files import written
from widgets.browser.model.model_page import ModelPage
from widgets.browser.model.model_reference import checksum, cores, difference, events_of, payload, states

pytestmark = pytest.mark.browser

NUM_SEEDS = 2
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


LATE = """
(runs) => runs.map(([payload, sums]) => {
  const recording = model.Recording.full(payload), { start, end } = recording, scene = recording.sceneAt(end);
  for (const moment of model.range(end, start)) {
    recording.move(scene, moment);
    const text = model.written(scene, model.core);
    if (model.checksum(text) !== sums[moment - start]) return { moment, text };
  }
  return null;
})
"""


def test_an_asynchronous_judge_names_the_slots_of_the_step_before(page: ModelPage, tmp_path: Path) -> None:
    runs = vllm_streams.read(vllm_streams.KINDS_PATH)
    items = next(items for workload, items in runs if workload["async"] and workload.get("speculation"))
    with labengine.attach(written(items, tmp_path)) as trace:
        events = [*trace.timeline.events()]
    fold, num_rejected = Fold(), 0
    for event in events:
        fold.apply(event)
        if isinstance(event, ev.DraftsJudged) and event.num_rejected:
            num_rejected += 1
            request = fold.requests[event.request_id]
            assert request.rejected is not None
            assert request.rejected[0] == len(request.token_ids) + event.num_accepted
    assert num_rejected > 10
    [wrong] = page.evaluate(LATE, [[payload(events), [checksum(core) for core in cores(events)]]])
    assert wrong is None, both(events, **wrong)


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_what_rejected_drafts_leave_is_known_from_any_moment_on(edition: str, page: ModelPage) -> None:
    events = drafted(edition)
    starts = [0, *[i for i, event in enumerate(events) if isinstance(event, ev.StepStarted)][::5]]
    folds = [Fold() for _ in starts]
    for fold, start in zip(folds, starts, strict=True):
        fold.apply_all(events[:start])
    assert any(fold.spoiled for fold in folds) and any(r.rejected for fold in folds for r in fold.requests.values())
    sums = [checksum(one) for one in cores(events)]
    runs = [[payload(events[i:], i, fold), sums[i:]] for i, fold in zip(starts, folds, strict=True)]
    for wrong in page.evaluate(LATE, runs):
        assert wrong is None, both(events, **wrong)


def drafted(edition: str) -> list[ev.Event]:
    """A run in whose tables are KV and states of rejected drafts."""
    groups = [GroupSpec(4), GroupSpec(8, "state")]
    guesses = FixedDrafts(tuple(Random(3).choices(range(20), k=40)), 3)
    text = [1, 2, 3, 4] * 5
    for speculation in (NGram(3), guesses):
        with Lab("simulated", num_blocks=40, groups=groups, edition=edition, speculation=speculation) as lab:
            for length in (7, 12, 20):
                lab.add(token_ids=text[:length], max_tokens=14)
            lab.run()
            events = [*lab.timeline.events()]
        if any(isinstance(event, ev.DraftsJudged) and event.num_rejected for event in events):
            return events
    raise AssertionError("no draft was rejected")


def both(events: list[ev.Event], moment: int, text: str) -> str:
    """What the two folds make of the moment, for a failing test."""
    state = json.dumps(list(cores(events[:moment]))[-1])
    return f"after {events[moment - 1]}\nPython:  {state}\nbrowser: {text}"
