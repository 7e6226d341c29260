"""What the browser's scenes know besides the state: chains, evictions, this step's share and slots, steps, letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import labengine
from driving import recorded
from grounds import Ground
from labengine import events as ev
from labengine.core.hash_chain import HashChain
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.phases import phase_after
from labengine.record.snapshot import map_key
from labengine_widgets.words.names import content_name
from labengine_widgets.words.sentences import sentence
from labengine_widgets.words.tier import KnownTier
from widgets.browser.model.drawn_scene import DrawnScene
from widgets.browser.model.model_page import ModelPage
from widgets.browser.model.model_reference import Reference, events_of, payload
from widgets.story_219 import begin, merging_step

pytestmark = pytest.mark.browser

FACTS = """
([payload, moments]) => {
  const recording = model.Recording.full(payload), pairs = (map) => [...map];
  return moments.map((moment) => {
    const scene = recording.sceneAt(moment);
    return {
      evicted: pairs(scene.evicted).map(([key, how]) => [key, how.block, how.moment, how.reason]),
      freed: [...scene.freedAt], sampled: pairs(scene.written.sampled), slots: scene.written.slots,
      requests: pairs(scene.requests).map(([id, { hit, external, scheduled, numPreempted, finishReason, maxTokens }]) =>
        [id, hit, external, scheduled && [scheduled.start, scheduled.num], numPreempted, finishReason, maxTokens]),
      traffic: scene.traffic.map(({ event, request, isLoad, isFailed }) => [event, request, isLoad, isFailed]),
      parents: [...scene.map.keys()].map((key) =>
        [key, recording.shared.parents.get(key) ?? null, recording.shared.parents.has(key)]),
      step: recording.stepAt(moment)?.step ?? 0,
    };
  });
}
"""


def facts(page: ModelPage, events: Sequence[ev.Event]) -> list[dict[str, Any]]:
    """At every moment."""
    return page.evaluate(FACTS, [payload(events), list(range(len(events) + 1))])


def steady(ground: Ground, seed: int) -> list[ev.Event]:
    """A workload that nothing disturbs."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    ground.drive(seed, hooks).run()
    return events


def test_what_events_say_of_requests_and_blocks_is_kept(page: ModelPage) -> None:
    events = steady(Ground("labengine"), 0)[:250]
    story = Story()
    for event_number, event, seen in zip(range(len(events)), events, facts(page, events)[1:], strict=True):
        story.hear(event_number, event)
        assert seen["requests"] == story.rows(), event
        assert seen["freed"] == story.freed, event
        assert [tuple(pair) for pair in seen["sampled"]] == list(story.sampled.items())
        assert [slot["runs"] for slot in seen["slots"]] == story.slots
        assert seen["step"] == story.step


class Story:
    """The same facts, read from the events one by one."""

    def __init__(self) -> None:
        self.requests: dict[int, list[Any]] = {}
        self.freed: list[int] = []
        self.sampled: dict[int, int] = {}
        self.slots: list[Any] = []
        self.step = 0

    def rows(self) -> list[Any]:
        """As the page gives them."""
        return [[i, *row] for i, row in self.requests.items()]

    def hear(self, number: int, event: ev.Event) -> None:
        """One event."""
        match event:
            case ev.EngineStarted():
                self.freed = [-1] * event.num_blocks
            case ev.StepStarted():
                self.step, self.sampled, self.slots = event.step, {}, []
                for row in self.requests.values():
                    row[2] = None
            case ev.RequestAdded():
                self.requests[event.request_id] = [None, 0, None, 0, None, event.max_tokens]
            case ev.PrefixHit():
                self.requests[event.request_id][0] = event.num_tokens
            case ev.RequestScheduled():
                self.requests[event.request_id][2] = [event.start, event.num_tokens]
            case ev.RequestPreempted():
                self.requests[event.request_id][3] += 1
            case ev.RequestFinished():
                self.requests[event.request_id][4] = event.reason
            case ev.TokenSampled():
                self.sampled[event.request_id] = event.token_id
            case ev.SlotsWritten():
                self.slots.append([list(run) for run in event.runs])
            case ev.BlockFreed(queue_end="head" | "tail"):
                self.freed[event.block_id] = number
            case ev.BlockAllocated() | ev.BlockTouched():
                self.freed[event.block_id] = -1


def test_a_hash_is_known_with_the_one_before_it(page: ModelPage) -> None:
    events = steady(Ground("nano-vllm"), 2)
    parents = {key: parent for key, parent in chain(events) if key}
    seen = {key: (parent, known) for moment in facts(page, events)[::5] for key, parent, known in moment["parents"]}
    assert any(parent for parent, _ in seen.values())
    assert {key: parent for key, (parent, known) in seen.items() if known} == {key: parents[key] for key in seen}


def chain(events: Sequence[ev.Event]) -> Iterator[tuple[str, str | None]]:
    """(key, key of the block before it), by hashing the tokens again."""
    fold, links = Fold(), HashChain()
    for event in events:
        fold.apply(event)
        if isinstance(event, ev.BlockCached):
            size, tokens = fold.groups[0].block_size, fold.requests[event.request_id].token_ids
            hashes = [links.root(())]
            for i in range(event.index + 1):
                hashes.append(links.link(hashes[-1], tokens[i * size : (i + 1) * size]))
            assert hashes[-1] == event.block_hash
            yield map_key(0, hashes[-1]), map_key(0, hashes[-2]) if event.index else None


@pytest.mark.parametrize("ground", [Ground("labengine"), Ground("vllm", True)], ids=str)
def test_what_the_map_lost_is_kept_with_the_reason(page: ModelPage, ground: Ground) -> None:
    events = steady(ground, 1)[:350]
    fold, lost, met = Fold(), {}, 0
    for number, (event, seen) in enumerate(zip(events, facts(page, events)[1:], strict=True)):
        before = dict(fold.prefix_map)
        fold.apply(event)
        for key in before.keys() - fold.prefix_map.keys() if isinstance(event, ev.BlockEvicted) else ():
            lost[map_key(*key)] = [event.block_id, number, event.reason]
            met += 1
        if isinstance(event, ev.BlockCached):
            lost.pop(map_key(event.group, event.block_hash), None)
        assert {key: how for key, *how in seen["evicted"]} == lost
    assert met


def test_traffic_with_the_tier_is_described(page: ModelPage) -> None:
    events = events_of(Ground("labengine", True, "late"), 1)
    expected = [
        [i, event.request_id, not isinstance(event, ev.BlocksSaved), isinstance(event, ev.LoadFailed)]
        for i, event in enumerate(events)
        if isinstance(event, ev.BlocksSaved | ev.BlocksLoaded | ev.LoadFailed)
    ]
    assert expected
    rolled_back = taken_back(events)
    assert facts(page, events)[-1]["traffic"] == [row for row in expected if row[0] not in rolled_back][-64:]


TIER = """
([payload]) => {
  const recording = model.Recording.full(payload), scene = recording.sceneAt(0), found = [];
  const look = () => [...scene.tier.keys()].map((key) => [key, scene.tier.pins(key)]);
  for (let moment = 0; moment <= recording.end; moment++) { recording.move(scene, moment); found.push(look()); }
  for (let moment = recording.end; moment >= 0; moment--) { recording.move(scene, moment); found.push(look()); }
  return found;
}
"""


@pytest.mark.parametrize(("id", "column"), [("sglang-27444", "pinned"), ("sglang-27444", "not pinned")])
def test_what_the_tier_holds_and_pins_is_known_at_every_moment(page: ModelPage, id: str, column: str) -> None:
    with labengine.bug(id).played(column) as lab:
        assert lab.timeline is not None
        events = lab.timeline.events()
    expected: list[list[list[Any]]] = []
    tier = KnownTier()
    for event in (None, *events):
        if isinstance(event, ev.BlocksSaved | ev.BlocksLoaded | ev.TierChanged):
            tier.note(event)
        expected.append([[map_key(*key), tier.pins.get(key, 0)] for key in tier])
    assert any(pins for row in expected for _, pins in row) is (column == "pinned")
    assert len({len(row) for row in expected}) > 1
    assert page.evaluate(TIER, [payload(events)]) == [*expected, *expected[::-1]]


def taken_back(events: Sequence[ev.Event]) -> set[int]:
    """Numbers of the events of steps that were rolled back."""
    found: set[int] = set()
    start = 0
    for i, event in enumerate(events):
        if isinstance(event, ev.StepStarted):
            start = i
        if isinstance(event, ev.StepRolledBack):
            found.update(range(start, i + 1))
    return found


STEPS = """
(payload) => {
  const { steps } = model.Recording.full(payload);
  return steps.map(({ step, start, end, isRolledBack, forward, phases }) =>
    [step, start, end, isRolledBack, forward, phases.map((p) => [p.moment, p.phase])]);
}
"""


@pytest.mark.parametrize("ground", [Ground("labengine"), Ground("nano-vllm", False)], ids=str)
def test_steps_have_their_moments_and_phases(page: ModelPage, ground: Ground) -> None:
    events = events_of(ground, 2)
    phases, expected = [None], []
    for i, event in enumerate(events):
        phases.append(phase_after(event, phases[-1]))
        if isinstance(event, ev.StepStarted):
            expected.append([event.step, i, None, False, None, []])
        elif isinstance(event, ev.StepEnded | ev.StepRolledBack):
            expected[-1][2:4] = [i + 1, isinstance(event, ev.StepRolledBack)]
        elif isinstance(event, ev.ForwardRan):
            expected[-1][4] = i + 1
    for step in expected:
        end = step[2] or len(events)
        moments = [m for m in range(step[1] + 1, end + 1) if phases[m] and phases[m] != phases[m - 1]]
        step[5] = [[m, phases[m]] for m in moments]
    assert page.evaluate(STEPS, payload(events)) == expected
    assert any(step[3] for step in expected)


LETTERS = """
([payload, texts]) => {
  const recording = model.Recording.full(payload);
  return texts.map(([moment, sentence]) => model.textOf(recording.numbered(sentence, moment)));
}
"""


def test_sentences_have_the_letters_of_the_picture(page: ModelPage) -> None:
    """A sentence mentions the block whose content it means; the browser, which counts contents, adds the letter."""
    events = [*begin(), *merging_step()]
    followed = Reference(DrawnScene(Fold()))
    expected, texts = [], []
    for moment, event in enumerate(events, 1):
        followed.apply(event)
        if isinstance(event, ev.BlockCached | ev.SlotsWritten):
            expected.append(sentence([event], followed.scene))
            texts.append([moment, expected[-1].row()])
    assert any(f"look-ups for {content_name(0)} find it" in text for text in expected)
    assert not any(content_name(0) in row for _, row in texts)
    order = list(range(len(texts)))[::2] + list(range(len(texts)))[1::2]
    lettered = page.evaluate(LETTERS, [payload(events), [texts[i] for i in order]])
    assert lettered == [expected[i] for i in order]


SHARED = """
(payload) => {
  const recording = model.Recording.full(payload, { keyframeEvery: 30 }), end = recording.end;
  const newest = () => JSON.stringify(model.stateOf(recording.sceneAt())), before = newest();
  for (let moment = end; moment > 0; moment -= 11) {
    const here = recording.sceneAt(moment), there = recording.sceneAt(moment), text = model.written(here);
    recording.move(there, end);
    if (model.written(here) !== text) return `a scene at ${moment} changed`;
  }
  return [before === newest(), recording.row(1)[2].length];
}
"""


def test_scenes_do_not_get_into_each_others_way(page: ModelPage) -> None:
    events = events_of(Ground("labengine"), 0)
    added = next(event for event in events if isinstance(event, ev.RequestAdded))
    assert page.evaluate(SHARED, payload(events)) == [True, len(added.token_ids)]
