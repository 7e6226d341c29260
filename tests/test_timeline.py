"""fold(events) == snapshot after every operation; the timeline's state at any moment is the fold of what came before.

The operations are add, abort, every phase of a step, complete steps, and steps that were given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from random import Random

import pytest

from driving import Drive, LiveFold, difference, recorded, small_engine
from grounds import ALL_GROUNDS, Ground
from labengine.config import SamplingParams
from labengine.events import (
    BlockAllocated,
    BlockEvicted,
    EngineStarted,
    Event,
    RequestAdded,
    RequestFinished,
    StepEnded,
    StepRolledBack,
    StepStarted,
    TokenSampled,
)
from labengine.record.fold import Fold, fold, surviving
from labengine.record.fold_state import Changes
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from recordings import timeline_of

LABENGINE = Ground("labengine")


@pytest.fixture(params=ALL_GROUNDS, ids=str)
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.param  # type: ignore[no-any-return]


def recorded_run(seed: int, ground: Ground, timeline: Timeline | None = None) -> tuple[list[Event], Drive]:
    """A whole run with adds, aborts and closed phases, and all its events."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    if timeline is not None:
        hooks.subscribe(timeline.record)
    drive = ground.drive(seed, hooks, keep_finished=seed % 4 or None)
    for _ in drive.operations(Random(seed)):
        pass
    return events, drive


def test_the_fold_equals_the_snapshot_after_every_operation(ground: Ground) -> None:
    seen = set()
    for seed in ground.seeds(100):
        hooks = Hooks(strict=True)
        live = LiveFold(hooks)
        drive = ground.drive(seed, hooks, keep_finished=seed % 4 or None)
        for operation in drive.operations(Random(seed)):
            seen.add(operation)
            wrong = difference(live.state.snapshot(), drive.engine.snapshot())
            assert wrong is None, f"workload {seed} after {operation}: {wrong}"
    assert seen == {"add", "abort", "reset", "schedule", "forward", "sample", "update", "rollback"}


def test_fold_of_a_list_equals_the_snapshot(ground: Ground) -> None:
    for seed in ground.seeds(40):
        events, drive = recorded_run(seed, ground)
        assert difference(fold(events), drive.engine.snapshot()) is None


def test_a_missing_event_is_noticed(ground: Ground) -> None:
    """Without its last allocation, a run cannot have gone on as it did; with it, every event could follow."""
    events, _ = recorded_run(3, ground)
    last = max(i for i, event in enumerate(events) if isinstance(event, BlockAllocated))
    assert num_impossible(events) == 0
    assert num_impossible(events[:last] + events[last + 1 :]) > 0


def num_impossible(events: Sequence[Event]) -> int:
    state = Fold()
    for i in surviving(events):
        state.apply(events[i])
    return state.num_impossible


def test_state_at_any_moment_is_the_fold_of_the_prefix(ground: Ground) -> None:
    for seed in ground.seeds(25):
        rng, timeline = Random(seed), Timeline()
        events, _ = recorded_run(seed, ground, timeline)
        assert timeline.end == len(events)
        for moment in (0, len(events), *(rng.randint(0, len(events)) for _ in range(12))):
            assert difference(timeline.state(moment).snapshot(), fold(events[:moment])) is None


def test_keyframes_and_dropping_do_not_change_what_is_seen(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timeline, "_KEYFRAME_EVERY", 25)
    num_dropped = 0
    for seed in ground.seeds(25):
        rng, timeline = Random(seed), Timeline(max_events=120)
        events, _ = recorded_run(seed, ground, timeline)
        assert timeline.end == len(events)
        assert list(timeline.events()) == events[timeline.num_dropped :]
        num_dropped += timeline.num_dropped
        for moment in sorted((rng.randint(timeline.num_dropped, timeline.end) for _ in range(25)), key=hash):
            assert difference(timeline.state(moment).snapshot(), fold(events[:moment])) is None
        if timeline.num_dropped:
            with pytest.raises(IndexError, match="no moment"):
                timeline.state(timeline.num_dropped - 1)
        with pytest.raises(IndexError, match="no moment"):
            timeline.state(timeline.end + 1)
    assert num_dropped > 1000


def test_recording_is_bounded() -> None:
    timeline = Timeline(max_events=50)
    engine = small_engine(4, 64, hooks=(hooks := Hooks(strict=True)))
    hooks.subscribe(timeline.record)
    timeline.record(EngineStarted(4, (("full", 64, None),), "labengine"))
    engine.add([1], SamplingParams(max_tokens=200))
    while engine.step():
        assert len(timeline.events()) <= 50 + 20, "max_events and one step"
    assert timeline.num_dropped > 500
    assert difference(timeline.state().snapshot(), engine.snapshot()) is None


def test_scrubbing_does_not_disturb_the_recording(ground: Ground) -> None:
    timeline = Timeline()
    events, drive = recorded_run(2, ground, timeline)
    state = timeline.state(len(events) // 2)
    state.ref_counts[:] = [99] * len(state.ref_counts)
    state.requests.clear()
    assert difference(timeline.state().snapshot(), drive.engine.snapshot()) is None


def test_many_rollbacks_in_a_row_cost_no_more_than_their_events() -> None:
    """Each attempt at a step may be interrupted: going back must not fold everything before it again."""
    timeline = Timeline()
    timeline.record(EngineStarted(4, (("full", 4, None),), "labengine"))
    for _ in range(200):
        timeline.record(StepStarted(1))
        timeline.record(StepRolledBack(1, "KeyboardInterrupt"))
    assert timeline.state().snapshot().step == 0


def test_what_happened_between_steps_survives_a_rollback() -> None:
    started = EngineStarted(4, (("full", 4, None),), "labengine")
    added, again = RequestAdded(0, (1, 2), 3), RequestAdded(1, (1, 2), 3)
    rolled_back = StepRolledBack(1, "ValueError")
    events = [started, added, StepStarted(1), rolled_back, again, StepStarted(1), rolled_back]
    assert sorted(fold(events).requests) == [0, 1]


def test_a_rollback_without_its_start_takes_nothing_back() -> None:
    """A listener may miss a StepStarted: one before it raised."""
    started = EngineStarted(4, (("full", 4, None),), "labengine")
    events = [started, StepStarted(1), StepEnded(1), RequestAdded(0, (1, 2), 3), StepRolledBack(2, "ValueError")]
    assert fold(events).step == 1
    assert list(fold(events).requests) == [0]
    timeline = timeline_of(events)
    assert difference(timeline.state().snapshot(), fold(events)) is None


def test_a_restarted_engine_restarts_the_recording() -> None:
    timeline = Timeline()
    recorded_run(1, LABENGINE, timeline)
    timeline.record(EngineStarted(3, (("full", 2, None),), "labengine"))
    assert (timeline.end, timeline.num_dropped) == (1, 0)
    assert len(timeline.state().snapshot().blocks) == 3


def test_each_start_is_a_new_generation() -> None:
    timeline = Timeline()
    assert timeline.generation == 0
    for generation in (1, 2):
        timeline.record(EngineStarted(3, (("full", 2, None),), "labengine"))
        assert timeline.generation == generation


def test_a_recording_can_start_at_a_state(ground: Ground) -> None:
    """A listener that comes late: its moment 0 is where it came."""
    complete = Timeline()
    events, _ = recorded_run(3, ground, complete)
    middle, _ = complete.step_moments(2)
    state = complete.state(middle)
    late = Timeline.starting_at(state, max_events=60)
    assert late.max_events == 60
    state.requests.clear()
    for event in events[middle:]:
        late.record(event)
    assert late.end == len(events) - middle
    for moment in range(late.num_dropped, late.end + 1, 11):
        assert difference(late.state(moment).snapshot(), complete.state(middle + moment).snapshot()) is None
    late.record(EngineStarted(3, (("full", 2, None),), "labengine"))
    assert len(late.state(1).ref_counts) == 3


def test_what_is_kept_is_reported_as_of_one_instant() -> None:
    timeline = Timeline(max_events=80)
    events, _ = recorded_run(4, LABENGINE, timeline)
    start, state, kept = timeline.kept()
    assert start == timeline.num_dropped > 0
    assert list(kept) == events[start:]
    assert difference(state.snapshot(), fold(events[:start])) is None


def test_the_seconds_of_each_kept_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(100.0)
    monkeypatch.setattr("labengine.record.timeline.perf_counter", lambda: next(clock))
    timeline = Timeline(max_events=10)
    timeline.record(EngineStarted(4, (("full", 4, None),), "labengine"))
    for step in range(1, 30):
        timeline.record(StepStarted(step))
        timeline.record(StepEnded(step))
    first = timeline.state(timeline.num_dropped).step
    assert first > 10
    assert timeline.step_seconds == dict.fromkeys(range(first + 1, 30), 1.0)
    timeline.record(StepStarted(30))
    timeline.record(StepRolledBack(30, "KeyboardInterrupt"))
    assert 30 not in timeline.step_seconds


def test_moments_of_a_step(ground: Ground) -> None:
    timeline = Timeline()
    events, drive = recorded_run(4, ground, timeline)
    for step in range(1, drive.engine.step_number + 1):
        before, after = timeline.step_moments(step)
        assert events[before] == StepStarted(step)
        assert events[after - 1] == StepEnded(step)
        assert timeline.state(after).step == step
    with pytest.raises(KeyError, match="is not in the recording"):
        timeline.step_moments(drive.engine.step_number + 1)


def test_events_between_moments_and_of_a_kind() -> None:
    timeline = Timeline()
    events, _ = recorded_run(5, LABENGINE, timeline)
    assert list(timeline.events(3, 7)) == events[3:7]
    assert timeline.of_kind(BlockEvicted) == [event for event in events if isinstance(event, BlockEvicted)]


def test_a_fold_can_start_at_a_snapshot(ground: Ground) -> None:
    """A listener that subscribes late folds on from the engine's current state."""
    for seed in ground.seeds(20):
        hooks, late = Hooks(strict=True), list[Event]()
        drive = ground.drive(seed, hooks, keep_finished=seed % 4 or None)
        operations = drive.operations(Random(seed))
        for _ in range(25):
            next(operations, None)
        operations.close()  # type: ignore[attr-defined]
        state = Fold.of(drive.engine.snapshot())
        assert difference(state.snapshot(), drive.engine.snapshot()) is None
        hooks.subscribe(late.append)
        drive.run()
        for event in late:
            state.apply(event)
        assert difference(state.snapshot(), drive.engine.snapshot()) is None


def test_changes_cover_all_that_differs_between_two_folds(ground: Ground) -> None:
    for seed in ground.seeds(40):
        rng, state = Random(seed), Fold()
        events, _ = recorded_run(seed, ground)
        survivors = [event for event in events if not isinstance(event, StepRolledBack)]
        if len(survivors) < len(events):
            survivors = _without_rollbacks(events)
        state.apply(survivors[0])
        state.take_changes()
        before = state.snapshot()
        for event in survivors[1:]:
            state.apply(event)
            if rng.random() < 0.2:
                after = state.snapshot()
                assert_covered(before, after, state.take_changes())
                before = after


def _without_rollbacks(events: list[Event]) -> list[Event]:
    kept: list[Event] = []
    for event in events:
        if isinstance(event, StepRolledBack):
            while not isinstance(kept.pop(), StepStarted):
                pass
        else:
            kept.append(event)
    return kept


def assert_covered(before: Snapshot, after: Snapshot, changes: Changes) -> None:
    pairs = zip(before.blocks, after.blocks, strict=True)
    assert {a.block_id for b, a in pairs if b != a} <= changes.blocks
    assert {i for i, r in after.requests.items() if before.requests.get(i) != r} <= changes.requests
    keys = {f"{group}:{block_hash.hex()}" for group, block_hash in changes.keys}
    both = {**before.prefix_map, **after.prefix_map}
    assert {key for key in both if before.prefix_map.get(key) != after.prefix_map.get(key)} <= keys
    of_blocks = {f"{g}:{h}" for i in changes.blocks for s in (before, after) for g, h in s.blocks[i].grouped_hashes}
    assert set(before.cached_free) ^ set(after.cached_free) <= keys | of_blocks


def test_nothing_applied_nothing_changed() -> None:
    state = Fold()
    state.apply(EngineStarted(3, (("full", 2, None),), "labengine"))
    state.take_changes()
    assert state.take_changes() == Changes()


def test_a_copy_stays_as_it_was_whatever_happens_to_a_finished_request() -> None:
    state = Fold()
    for event in (EngineStarted(3, (("full", 2, None),), "labengine"), RequestAdded(0, (1, 2), 4)):
        state.apply(event)
    state.apply(RequestFinished(0, "stop"))
    kept, before = state.copy(), state.snapshot()
    state.apply(TokenSampled(0, 7, 2))  # an engine that is wrong may do it
    assert kept.snapshot() == before
    assert state.snapshot().requests[0].token_ids == (1, 2, 7)
