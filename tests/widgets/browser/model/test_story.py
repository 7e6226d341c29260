"""The story of a run, for the views of time: lives of blocks, states of requests, figures per step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differential import vllm_streams
from labengine import events as ev
from labengine.record.timeline import Timeline
from stream.test_connector_streams import piece_of
from widgets.browser.views.time_page import Viewed, busy, show_views, with_rollback
from widgets.story_219 import begin, overwriting_step

pytestmark = pytest.mark.browser

AT = """
([moments]) => {
  const story = storyOf(side.recording), blocks = [...Array(story.numBlocks).keys()];
  const lives = (moment) => blocks.map((id) => {
    const { life, key, owner, refs } = story.lifeAt(id, moment);
    return [life, key, owner, refs];
  });
  const states = (moment) => [...story.lanes].map(([id, lane]) =>
    [id, lane.state[lane.at.findLastIndex((at) => at < moment)] ?? null]);
  return moments.map((moment) => ({ lives: lives(moment), states: states(moment) }));
}
"""
FREE, LIVE, CACHED, LOST = range(4)
STATES = ["waiting", "prefill", "decode", "preempted", "finished", "loading"]


def expected_lives(timeline: Timeline, moment: int) -> list[tuple[int, int]]:
    """(life, references) of each block, by the fold."""
    fold, lives = timeline.state(moment), []
    for block_id, refs in enumerate(fold.ref_counts):
        keys = fold.block_keys[block_id]
        is_mapped = any(block_id in fold.prefix_map.get(key, ()) for key in keys)
        held = LOST if keys and not is_mapped else LIVE
        lives.append((held if refs else CACHED if is_mapped else FREE, refs))
    return lives


def connected() -> list[ev.Event]:
    """Recorded runs of vLLM with connectors, one after the other: they pin, defer, copy."""
    runs = vllm_streams.read(vllm_streams.CONNECTOR_PATH)
    return [event for _, items in runs for event in piece_of(items).timeline.events()]


RUNS: dict[str, Callable[[], list[ev.Event]]] = {
    "rolled back": lambda: with_rollback(busy(), 20),
    "219": lambda: [*begin(), *overwriting_step()],
    "connected": connected,
}


@pytest.mark.parametrize("run", RUNS)
def test_the_story_agrees_with_the_fold(run: str) -> None:
    events = RUNS[run]()

    def check(view: Viewed) -> None:
        timeline = view.view_source.timeline
        assert timeline is not None
        moments = [*range(1, timeline.end, max(1, timeline.end // 40)), timeline.end]
        for moment, drawn in zip(moments, view.js(AT, moments), strict=True):
            fold = timeline.state(moment)
            assert [(life, refs) for life, _, _, refs in drawn["lives"]] == expected_lives(timeline, moment), moment
            for block_id, (life, key, owner, _) in enumerate(drawn["lives"]):
                known = [f"{group}:{block_hash.hex()}" for group, block_hash in fold.block_keys[block_id]]
                assert key == (known[0] if known and life != FREE else None)
                owners = [i for i, r in fold.requests.items() if any(block_id in table for table in r.block_tables)]
                if block_id != fold.null_block:
                    assert owner == (-1 if not owners else owners[0] if len(owners) == 1 else -2), (moment, block_id)
            states = {request: None if state is None else STATES[state] for request, state in drawn["states"]}
            for request_id, request in fold.requests.items():
                expected = {request.status} if request.status != "running" else {"prefill", "decode"}
                assert states[request_id] in expected, (moment, request_id)

    show_views(check, events, "timeline")


def test_the_figures_per_step_are_those_of_the_run() -> None:
    events = with_rollback(busy(), 20)

    def check(view: Viewed) -> None:
        timeline = view.view_source.timeline
        assert timeline is not None
        series = view.js("() => storyOf(side.recording).series")
        assert series["step"] == list(range(1, max(series["step"]) + 1))
        assert series["used"] == [timeline.state(moment).num_used_blocks for moment in series["moment"]]
        assert all(peak >= used for peak, used in zip(series["peak"], series["used"], strict=True))
        real = [event for i, event in enumerate(events) if i not in undone(events)]
        sampled = sum(isinstance(event, ev.TokenSampled) for event in real)
        scheduled = sum(event.num_tokens for event in real if isinstance(event, ev.RequestScheduled))
        assert sum(series["sampled"]) == sampled and sum(series["prefill"]) + sum(series["decode"]) == scheduled
        lengths = {event.request_id: len(event.token_ids) for event in real if isinstance(event, ev.RequestAdded)}
        hits = [event for event in real if isinstance(event, ev.PrefixHit)]
        assert series["looked"][-1] == sum(lengths[event.request_id] for event in hits)
        assert series["hit"][-1] == sum(min(event.num_tokens, lengths[event.request_id]) for event in hits) > 0

    show_views(check, events, "charts")


def undone(events: list[ev.Event]) -> set[int]:
    """The numbers of the events of the rolled-back step."""
    end = next(i for i, event in enumerate(events) if isinstance(event, ev.StepRolledBack))
    start = max(i for i in range(end) if isinstance(events[i], ev.StepStarted))
    return set(range(start, end + 1))
