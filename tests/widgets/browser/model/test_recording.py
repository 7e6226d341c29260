"""The browser's recording: events in pieces, late or older ones, too many of them, and engines that restart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import labengine
from differential import vllm_streams
from differential.tapped import TappedRun
from driving import recorded, small_engine
from grounds import Ground
from labengine import events as ev
from labengine.config import GroupSpec, SamplingParams
from labengine.lab import Lab
from labengine.record.files import codec
from labengine.record.hooks import Hooks
from labengine_widgets.feed.payload import corrections
from labengine_widgets.words.tier import kept_contents
from recordings import timeline_of
from widgets.browser.model.drawn_scene import DrawnScene
from widgets.browser.model.model_page import ModelPage
from widgets.browser.model.model_reference import (
    Reference,
    checksum,
    difference,
    events_of,
    payload,
    renumbered,
    states,
)

pytestmark = pytest.mark.browser

LAYOUTS = {
    "full": (GroupSpec(4),),
    "window": (GroupSpec(4), GroupSpec(4, "sliding_window", 6)),
    "states": (GroupSpec(4), GroupSpec(8, "state")),
}

GROUND = Ground("labengine")
TIERED = Ground("labengine", True, "prompt")

WALK = """
([payload, sums]) => {
  const recording = model.Recording.full(payload, { keyframeEvery: 50 }), { start, end } = recording;
  return model.walk(recording, sums, model.range(start, end)) ?? model.walk(recording, sums, model.range(end, start));
}
"""

MORE = """
([payload, chunks, sums]) => {
  const recording = model.Recording.full(payload, { keyframeEvery: 60 }), scene = recording.sceneAt();
  for (const chunk of chunks) {
    if (!recording.more(chunk)) return { moment: recording.end, text: "[]", way: "refused" };
    const { end } = recording, there = [end >> 1, end];
    const wrong = model.walk(recording, sums, [end], scene) ?? model.walk(recording, sums, there);
    if (wrong) return wrong;
  }
  return recording.more({ start: recording.end - 1, events: [] }) ? "joined what does not join" : null;
}
"""

OLDER = """
([payload, older, moments]) => {
  const recording = model.Recording.full(payload, { keyframeEvery: 60 }), text = (scene) => [...scene.map.keys()];
  const scene = recording.sceneAt(), before = text(scene).map((key) => [key, scene.contentOf(key)]);
  const joined = recording.older(older);
  return {
    joined, start: recording.start,
    moved: before.filter(([key, number]) => scene.contentOf(key) !== number),
    states: moments.map((moment) => model.stateOf(recording.sceneAt(moment))),
  };
}
"""

CORRECTED = """
([first, next]) => {
  const recording = model.Recording.full(first), counts = ({ refCounts }) => [...refCounts];
  if (next && !(next.start ? recording.more(next) : recording.older(next))) return "refused";
  const moments = Array.from({ length: recording.end + 1 }, (_, moment) => moment), scene = recording.sceneAt(0);
  const moved = (moment) => (recording.move(scene, moment), counts(scene));
  const ways = [moments.map((moment) => counts(recording.sceneAt(moment))), moments.map(moved)];
  return [...ways, moments.toReversed().map(moved).toReversed(), [counts(recording.head)]];
}
"""

LIVE = """
([payload, chunks, sums]) => {
  const recording = model.Recording.full(payload, { keyframeEvery: 60, maxEvents: 200 });
  const follower = recording.sceneAt(), numbers = new Map(), walk = (moments, scene) =>
    model.walk(recording, sums.slice(recording.start), moments, scene, model.renumbered);
  for (const chunk of chunks) {
    recording.more(chunk);
    const wrong = walk([recording.end], follower), keys = [...follower.map.keys()];
    if (wrong) return wrong;
    for (const key of keys)
      if ((numbers.get(key) ?? follower.contentOf(key)) !== follower.contentOf(key)) return `${key} has another number`;
    numbers.clear();
    for (const key of keys) numbers.set(key, follower.contentOf(key));
  }
  const { start, end } = recording;
  if (!start || end - start > 300) return `${start} to ${end} is kept`;
  return walk(model.range(start, end)) ?? walk(model.range(end, start));
}
"""

GROWTH = """
([payload, chunks]) => {
  const recording = model.Recording.full(payload, { maxEvents: 700, keyframeEvery: 100, maxEnded: 5 });
  const scene = recording.sceneAt(), sizes = [];
  for (const chunk of chunks) {
    recording.more(chunk);
    recording.move(scene, recording.end);
    const { head, rows, keyframes, steps, shared: { keys } } = recording;
    const requests = Math.max(head.requests.size, scene.requests.size), prefixes = head.contents.prefixes[0].size;
    sizes.push([keys.size, requests, rows.length, keyframes.length, steps.length, prefixes]);
  }
  return sizes;
}
"""


def walk(page: ModelPage, events: Sequence[ev.Event], message: Any = None) -> None:
    """Ask for the same state as in Python at each moment, from the first to the last and back."""
    sums = [checksum(state) for state in states(events)]
    wrong = page.evaluate(WALK, [message or payload(events), sums])
    assert wrong is None, difference(events, wrong)


def pieces(events: Sequence[ev.Event], start: int, size: int | None = None) -> list[dict[str, Any]]:
    """`more` messages: of so many events each, or of any number."""
    rng, messages = Random(0), []
    while start < len(events):
        stop = start + (size or rng.randint(1, 60))
        messages.append({"start": start, "events": payload(events[start:stop])["events"]})
        start = stop
    return messages


def step_start(events: Sequence[ev.Event], at: float) -> int:
    """The start of a step that stayed, about that far into them."""
    starts = [i for i, event in enumerate(events) if isinstance(event, ev.StepStarted)]
    return starts[int(at * len(starts))]


def test_events_may_come_in_pieces_of_any_size(page: ModelPage) -> None:
    events = events_of(GROUND, 1)
    sums = [checksum(state) for state in states(events)]
    wrong = page.evaluate(MORE, [payload(events[:7]), pieces(events, 7), sums])
    assert wrong is None, difference(events, wrong)


BRANCHED: list[ev.Event] = [
    ev.EngineStarted(8, (("full", 4, None),), "labengine"),
    ev.RequestAdded(0, (1, 2, 3, 4, 5), 4),
    ev.StepStarted(1),
    ev.PrefixHit(0, 0, ((),)),
    *(ev.BlockAllocated(i, 0, 0, i) for i in range(2)),
    ev.RequestScheduled(0, 0, 5, True, "running"),
    ev.SlotsWritten(0, 0, 0, ((0, 0, 4), (1, 0, 1))),
    ev.TokensComputed(0, 5),
    ev.TokenSampled(0, 9, 5),
    ev.StepEnded(1),
    ev.RequestAdded(1, (1, 2, 3, 4, 5, 8), 4, num_generated=1),
    ev.RequestForked(1, 0, 5, ((0, 1),)),
    *(ev.BlockTouched(i, 1, 0, i, 2, is_fork=True) for i in range(2)),
    *(ev.BlockFreed(i, 1, 0, i, 1, None, "aborted") for i in (1, 0)),
    ev.RequestFinished(1, "abort"),
]
"""A branch that ends before it writes: its parent's blocks are as they were."""

COPIES: list[ev.Event] = [
    ev.EngineStarted(8, (("full", 4, None),), "vllm", 0),
    *(ev.RequestAdded(i, tuple(range(9 + i)), 4) for i in range(2)),
    ev.StepStarted(1),
    ev.PrefixHit(0, 0, ((),)),
    *(ev.BlockAllocated(1 + i, 0, 0, i) for i in range(3)),
    *(ev.BlockCached(1 + i, 0, 0, i, bytes([i]), (1 + i,)) for i in range(2)),
    ev.BlockCached(3, 0, 0, 2, b"part", (3,), is_full=False),
    ev.PrefixHit(1, 9, ((1, 2, 3),)),
    *(ev.BlockTouched(1 + i, 1, 0, i, 2) for i in range(3)),
    ev.BlockCopied(3, 4, 1, 0, 2),
    *(ev.BlockUnpinned(block_id, 1, None) for block_id in (3, 4)),
    ev.SlotsWritten(1, 0, 9, ((4, 1, 1),)),
    ev.HashesMoved(2, 5),
    ev.BlockPinned(5, 1),
    ev.FreeDeferred(0, 0, (1, 2, 3)),
    ev.RequestPreempted(0),
    *(ev.BlockUnpinned(block_id, 0, end) for block_id, end in ((3, "tail"), (5, "tail"))),
    *(ev.BlockUnpinned(block_id, 1, None) for block_id in (2, 1)),
    ev.StepEnded(1),
]
"""A hit inside a block that goes on in a copy, hashes that move, and frees that wait."""


@pytest.mark.parametrize(("number", "is_async"), [(0, False), (0, True), (2, True)])
def test_what_a_connector_does_is_folded_alike(page: ModelPage, number: int, is_async: bool) -> None:
    """Recorded on vLLM: loads that come late and fail, blocks held after the end, pins, frees that wait.

    With asynchronous scheduling KV is written before its token is known.
    """
    runs = vllm_streams.read(vllm_streams.CONNECTOR_PATH)
    items = [items for workload, items in runs if workload["async"] is is_async][number]
    run = TappedRun()
    assert run.take(items) is None
    events = run.reader.pieces[0].timeline.events()[:450]
    walk(page, events)


def test_copies_and_moved_hashes_are_folded_alike(page: ModelPage) -> None:
    walk(page, COPIES)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", [0, 1])
def test_a_request_that_changes_labs_is_folded_alike(page: ModelPage, layout: str, side: int) -> None:
    """Two of three requests move, one of them in the middle of its prefill; the other lab has a part of their KV."""
    settings: dict[str, Any] = {"num_blocks": 40, "groups": LAYOUTS[layout], "max_num_batched_tokens": 24}
    with Lab("simulated", **settings) as left, Lab("simulated", edition="vllm", **settings) as right:
        right.add(token_ids=range(15), max_tokens=9)
        for length in (11, 14, 20):
            left.add(token_ids=range(length), max_tokens=7)
        right.step(), left.step(2)
        left.hand_over(0, right)
        left.hand_over(1, right)
        left.run(), right.run()
        timeline = (left, right)[side].timeline
        assert timeline is not None
        events = [*timeline.events()]
    walk(page, events)


@pytest.mark.parametrize(("is_hybrid", "seed"), [(False, 17), (False, 18), (True, 1), (True, 10)])
def test_forks_and_their_copies_are_folded_alike(page: ModelPage, is_hybrid: bool, seed: int) -> None:
    events = [*events_of(Ground("labengine", is_hybrid, has_forks=True), seed), *BRANCHED]
    assert {ev.RequestForked, ev.BlockCopied, ev.BeamReplaced} <= set(map(type, events))
    walk(page, events)


@pytest.mark.parametrize("ground", [TIERED, Ground("vllm", True), Ground("mini-sglang+142")], ids=str)
def test_a_page_that_comes_late_begins_with_a_keyframe(page: ModelPage, ground: Ground) -> None:
    events = events_of(ground, 1)
    timeline, start = timeline_of(events), step_start(events, 0.4)
    tier = kept_contents(timeline, start)
    late = Reference(DrawnScene(timeline.state(start), tier=tier))
    late.scene.update()
    for block_id in range(late.scene.num_blocks):
        late.scene.filling.content(block_id)
    sums = [checksum(state) for state in states(events[start:], late)]
    message = payload(events[start:], start, timeline.state(start), tier=tier)
    assert page.evaluate(WALK, [message, sums]) is None


@pytest.mark.parametrize("ground", [TIERED, Ground("vllm", True)], ids=str)
def test_older_events_join_on_before_and_no_content_changes_its_number(page: ModelPage, ground: Ground) -> None:
    events = events_of(ground, 1)  # no salts: which of two keys has a prefix's number depends on where one begins
    timeline, start, first = timeline_of(events), step_start(events, 0.7), step_start(events, 0.2)
    message = payload(events[start:], start, timeline.state(start), tier=kept_contents(timeline, start))
    older = [payload(events[:start])]
    if ground is not TIERED:
        older = [payload(events[first:start], first, timeline.state(first))]
    moments = [*range(older[0]["start"], len(events) + 1, 7)]
    seen = page.evaluate(OLDER, [message, older[0], moments])
    assert (seen["joined"], seen["start"], seen["moved"]) == (True, older[0]["start"], [])
    if older[0]["start"] == 0:
        expected = [json.loads(codec.dumps(state)) for i, state in enumerate(states(events)) if i % 7 == 0]
        assert same_but_for_numbers(expected, seen["states"])


def same_but_for_numbers(python: list[Any], page: list[Any]) -> bool:
    """Equal states, and one number there for each number here."""
    pairs: dict[int, int] = {}
    for expected, state in zip(python, page, strict=True):
        for mine, theirs in zip(expected[3], state[3], strict=True):
            assert pairs.setdefault(mine[2], theirs[2]) == theirs[2]
            mine[2] = theirs[2]
        assert expected == state
    return len(set(pairs.values())) == len(pairs) > 3


def test_older_events_that_do_not_join_are_refused(page: ModelPage) -> None:
    events = events_of(GROUND, 0)
    start = step_start(events, 0.5)
    message = payload(events[start:], start, timeline_of(events).state(start))
    assert page.evaluate(OLDER, [message, payload(events[: start - 1]), []])["joined"] is False


def test_a_recording_goes_on_from_a_state_that_its_events_do_not_lead_to(page: ModelPage) -> None:
    events = [
        ev.EngineStarted(3, (("full", 4, None),), "labengine"),
        ev.RequestAdded(0, (1, 2, 3, 4, 5), 1),
        ev.StepStarted(1),
        ev.BlockAllocated(0, 0, 0, 0),
        ev.StepEnded(1),
        ev.StepStarted(2),
        ev.BlockAllocated(1, 0, 0, 1),
    ]
    timeline = timeline_of(events[:5])
    wrong = timeline.state()
    wrong.ref_counts = [0, 0, 2]
    timeline.correct(wrong)
    for event in events[5:]:
        timeline.record(event)
    counts = [timeline.state(moment).ref_counts for moment in range(8)]
    assert counts[4:] == [[1, 0, 0], [0, 0, 2], [0, 0, 2], [0, 1, 2]]
    more = {"corrections": corrections(timeline, 0, 7)}
    for first, then in (
        (payload(events, **more), None),
        (payload(events[:3]), payload(events[3:], 3, **more)),
        (payload(events[:5]), payload(events[5:], 5, **more)),
        (payload(events[6:], 6, timeline.state(6)), payload(events[:6], **more)),
    ):
        assert page.evaluate(CORRECTED, [first, then]) == [counts, counts, counts, counts[-1:]]


@pytest.mark.parametrize("ground", [GROUND, TIERED], ids=str)
def test_a_live_recording_keeps_the_newest_events_and_all_states_among_them(page: ModelPage, ground: Ground) -> None:
    events = events_of(ground, 6, 900)
    assert len(events) > 600
    sums = [checksum(renumbered(state)) for state in states(events)]
    wrong = page.evaluate(LIVE, [payload(events[:50]), pieces(events, 50, 25), sums])
    assert wrong is None, wrong if isinstance(wrong, str) else difference(events, wrong)


def test_a_long_run_forgets_what_nobody_can_see_any_more(page: ModelPage) -> None:
    events = busy_events(8_000)
    sizes = page.evaluate(GROWTH, [payload(events[:100]), pieces(events, 100, 100)])
    early = [max(column) for column in zip(*sizes[12:32], strict=True)]
    late = [max(column) for column in zip(*sizes[-20:], strict=True)]
    assert all(after <= 1.3 * before for before, after in zip(early, late, strict=True)), (early, late)


def busy_events(num_events: int) -> list[ev.Event]:
    """Ever new requests of 24 tokens, half of them alike, on 64 blocks of 4."""
    hooks, rng = Hooks(strict=True), Random(1)
    events, engine = recorded(hooks), small_engine(64, 4, hooks=hooks, next_token=lambda i, position: i * 31 + position)
    while len(events) < num_events:
        while len(engine.scheduler.waiting) < 3:
            prompt = [1] * 12 + [rng.randrange(1000) for _ in range(12)]
            engine.add(prompt, SamplingParams(max_tokens=rng.randint(2, 12)))
        engine.step()
    return events


def test_an_engine_that_starts_anew_leaves_nothing_of_the_one_before(page: ModelPage) -> None:
    events = events_of(GROUND, 1, 200) + events_of(Ground("vllm", True), 2, 300)
    walk(page, events)


def test_slots_that_went_astray(page: ModelPage) -> None:
    """nano-vLLM PR 71: token 3 goes to slot 7."""
    with labengine.bug("nano-vllm-71").broken() as lab:
        assert lab.timeline is not None
        events = list(lab.timeline.events())
    walk(page, events)


def test_rows_with_their_fields_in_another_order_are_understood(page: ModelPage) -> None:
    """Another version's file says in its header which field lies where; a field it lacks takes its default."""
    events = events_of(GROUND, 0)
    message = payload(events)
    kinds = message["header"]["kinds"]
    names = [name for name, *_ in kinds]
    freed, cached = names.index("BlockFreed"), names.index("BlockCached")
    kinds[freed] = [kinds[freed][0], *reversed(kinds[freed][1:])]
    kinds[cached] = kinds[cached][:-1]
    message["events"] = [
        [row[0], *reversed(row[1:])] if row[0] == freed else row[:-1] if row[0] == cached else row
        for row in message["events"]
    ]
    walk(page, events, message)
