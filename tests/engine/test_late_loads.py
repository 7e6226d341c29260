"""Slow loads from an external tier: the request waits with its blocks, and no other request waits."""

from __future__ import annotations

import pytest

from check.watched import watched
from driving import (
    TOKEN_BUDGET_EDITIONS,
    assert_drained,
    assert_sound,
    difference,
    queues,
    recorded,
    small_engine,
)
from fake_tier import FakeTier, Luck, TierDown
from labengine.config import SamplingParams
from labengine.engine.engine import Engine
from labengine.events import (
    BlocksLoaded,
    Event,
    ExternalHit,
    LoadFailed,
    PrefixHit,
    RequestPreempted,
    RequestScheduled,
)
from labengine.record.hooks import Hooks

PROMPT = list(range(100, 110))  # two full blocks of four, and two tokens
UNLIKE = list(range(400, 409))
OTHER = list(range(200, 205))
ONE = SamplingParams(max_tokens=1)
FIVE = SamplingParams(max_tokens=5)


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def engine_with_late_tier(
    delay: int = 1, edition: str = "labengine", *, num_blocks: int = 16, luck: Luck | None = None, seed: int = 0
) -> tuple[Engine, FakeTier, list[Event]]:
    """An empty pool over a tier that holds two blocks of each of two prompts, and the events from now on."""
    filled = FakeTier()
    filling = small_engine(16, 4, connector=filled)
    for prompt in (PROMPT, UNLIKE):
        filling.add(prompt, ONE)
    filling.step()
    tier = FakeTier(luck, seed, delay=delay)
    tier.blocks.update(filled.blocks)
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    return small_engine(num_blocks, 4, edition, hooks=hooks, connector=tier), tier, events


def state(engine: Engine, request_id: int = 0) -> tuple[str, int, int]:
    """Status, tokens with KV, and blocks held."""
    request = engine.snapshot().requests[request_id]
    return request.status, request.num_computed_tokens, len(request.block_tables[0])


def test_a_request_waits_with_its_blocks_until_its_kv_is_there(edition: str) -> None:
    engine, _, events = engine_with_late_tier(2, edition)
    engine.add(PROMPT, ONE)
    report = engine.step()
    assert (report.scheduled, report.loading) == ({}, (0,))
    assert report, "waiting for the tier is something to do"
    assert state(engine) == ("waiting", 0, 2)
    assert queues(engine) == ([], [], [0])
    assert engine.step().loading == (0,)
    report = engine.step()
    assert (report.scheduled, report.loading, report.finished) == ({0: 2}, (), (0,))
    assert [event for event in events if isinstance(event, ExternalHit)] == [ExternalHit(0, 8, True)]
    assert_drained(engine)


def test_the_kv_counts_as_computed_once_it_is_reported(edition: str) -> None:
    engine, _, events = engine_with_late_tier(1, edition)
    engine.add(PROMPT, FIVE)
    engine.step()
    phases = engine.phases()
    next(phases)
    kinds = [type(event) for event in events]
    assert kinds.index(BlocksLoaded) < kinds.index(RequestScheduled)
    assert state(engine) == ("running", 8, 3)
    assert list(phases)[-1] == "update"
    assert state(engine) == ("running", 10, 3)


def test_its_blocks_are_a_hit_only_once_they_are_filled(edition: str) -> None:
    """An equal prompt that comes meanwhile loads on its own, in every edition."""
    engine, _, _ = engine_with_late_tier(1, edition)
    engine.add(PROMPT, FIVE)
    engine.step()
    assert engine.snapshot().prefix_map == {}
    engine.add(PROMPT, FIVE)
    engine.step()
    assert len(engine.snapshot().prefix_map) == 2
    assert queues(engine) == ([], [0, 1], []), "the second one found them: they are filled by now"


def test_who_arrives_goes_before_those_who_wait(edition: str) -> None:
    engine, _, _ = engine_with_late_tier(1, edition, num_blocks=4)
    engine.add(PROMPT, FIVE)
    engine.step()
    engine.add([*OTHER, 1, 2, 3, 4], ONE)
    assert list(engine.step().scheduled) == [0]


def test_a_late_load_that_fails_is_computed_instead(edition: str) -> None:
    engine, tier, events = engine_with_late_tier(1, edition, luck=Luck(fails=1))
    engine.add(PROMPT, ONE)
    while not engine.step().finished:
        assert_sound(engine.snapshot(), edition)
    assert tier.met["failed load"] >= 1
    failures = [event for event in events if isinstance(event, LoadFailed)]
    assert failures and failures[0].request_id == 0
    assert "blocks did not arrive" in failures[0].reason
    assert not [event for event in events if isinstance(event, BlocksLoaded)]
    assert_drained(engine)


def test_a_failed_load_takes_the_requests_blocks_and_not_its_place() -> None:
    engine, _, events = engine_with_late_tier(1, luck=Luck(fails=1))
    engine.add(PROMPT, ONE)
    engine.step()
    engine.add(OTHER, ONE)
    engine.step()
    relevant = [type(event) for event in events if isinstance(event, (LoadFailed, RequestPreempted, PrefixHit))]
    assert relevant[:4] == [PrefixHit, LoadFailed, RequestPreempted, PrefixHit]
    assert [event.request_id for event in events if isinstance(event, PrefixHit)][:2] == [0, 0]


def test_an_abort_while_loading_cancels_the_load() -> None:
    engine, tier, _ = engine_with_late_tier(2)
    engine.add(PROMPT, ONE)
    engine.step()
    assert list(tier.on_their_way) == [0]
    assert engine.abort(0)
    assert not tier.on_their_way and not tier._loading
    assert_drained(engine)
    assert not engine.step()


def test_an_abort_after_the_arrival_but_before_a_step_took_note_frees_everything() -> None:
    engine, tier, _ = engine_with_late_tier(0)
    engine.add(PROMPT, ONE)
    engine.step()
    phases = engine.phases()
    next(phases)
    phases.close()  # type: ignore[attr-defined]
    assert not tier.on_their_way, "the tier has reported the loads; the step in which it did was rolled back"
    assert engine.abort(0)
    assert_drained(engine)


def test_an_arrival_is_not_lost_with_the_step_that_heard_it(edition: str) -> None:
    engine, _, _ = engine_with_late_tier(0, edition)
    engine.add(PROMPT, ONE)
    engine.step()
    for num_phases in (1, 2, 3):
        phases = engine.phases()
        for _ in range(num_phases):
            next(phases)
        phases.close()  # type: ignore[attr-defined]
        assert state(engine) == ("waiting", 0, 2)
    assert engine.step().scheduled == {0: 2}


def test_a_load_is_lost_if_a_step_merged_its_blocks_and_gave_them_away_before_it_was_rolled_back() -> None:
    """The blocks of the second of two equal loads: the step merged them, and wrote the tails of both prompts there."""
    setup = watched(connector=FakeTier(delay=1))
    setup.add(*PROMPT)
    setup.run()
    setup.engine.reset_prefix_cache()
    for _ in range(2):
        setup.add(*PROMPT)
    setup.steps(1)
    phases = setup.engine.phases()
    assert [next(phases), next(phases)] == ["schedule", "forward"]
    phases.close()  # type: ignore[attr-defined]
    assert [state(setup.engine, request_id) for request_id in (1, 2)] == [("waiting", 0, 2), ("preempted", 0, 0)]
    setup.engine.abort(1)
    setup.run()
    setup.assert_clean()


def test_a_load_that_hangs_holds_up_nobody_else_and_ends_with_an_abort(edition: str) -> None:
    engine, tier, _ = engine_with_late_tier(1, edition, luck=Luck(hangs=1))
    engine.add(PROMPT, ONE)
    engine.add(OTHER, FIVE)
    while engine.requests[1].status != "finished":
        assert engine.step().loading == (0,)
    assert queues(engine) == ([], [], [0])
    assert engine.step().loading == (0,)
    assert_sound(engine.snapshot(), edition)
    engine.abort(0)
    assert tier.met["cancelled load"] == 1
    assert_drained(engine)


def test_a_step_that_started_a_load_and_is_taken_back_cancels_it() -> None:
    engine, tier, _ = engine_with_late_tier(1)
    engine.add(PROMPT, ONE)
    phases = engine.phases()
    next(phases)
    assert list(tier.on_their_way) == [0]
    phases.close()  # type: ignore[attr-defined]
    assert not tier.on_their_way and not tier._loading
    assert state(engine) == ("waiting", 0, 0)
    while not engine.step().finished:
        pass
    assert_drained(engine)


def test_a_preempted_request_that_loads_is_a_waiting_one(edition: str) -> None:
    """It holds blocks again, and a preempted one holds none."""
    engine, _, _ = engine_with_late_tier(1, edition, num_blocks=5)
    engine.add(OTHER[:4], SamplingParams(max_tokens=9))
    engine.add(PROMPT, SamplingParams(max_tokens=5))
    seen = set()
    while engine.step():
        assert_sound(engine.snapshot(), edition)
        was_preempted = engine.requests[1].num_generated_tokens > 0
        if queues(engine)[2] == [1] and was_preempted:
            seen.add(state(engine, 1)[0])
    assert seen == {"waiting"}
    assert_drained(engine)


def test_requests_that_arrived_do_not_wait_for_each_others_blocks_for_ever(edition: str) -> None:
    """Five blocks; two requests hold two loaded ones each, and the first needs two more: the second gives way."""
    engine, _, _ = engine_with_late_tier(1, edition, num_blocks=5)
    engine.add([*PROMPT[:8], *range(300, 306)], ONE)
    engine.add(UNLIKE, ONE)
    assert engine.step().loading == (0, 1)
    assert engine.num_used_blocks == 4
    report = engine.step()
    assert (report.preempted, list(report.scheduled)) == ((1,), [0])
    for _ in range(10):
        engine.step()
        assert_sound(engine.snapshot(), edition)
    assert [request.finish_reason for request in engine.requests.values()] == ["length", "length"]
    assert_drained(engine)


def test_a_tier_that_cannot_say_what_has_arrived_ends_no_request(edition: str) -> None:
    engine, tier, _ = engine_with_late_tier(1, edition)
    engine.add(PROMPT, ONE)
    engine.step()
    before, tier._luck = engine.snapshot(), Luck(raises=1, methods=("get_finished",))
    for _ in range(3):
        with pytest.raises(TierDown):
            engine.step()
        assert difference(engine.snapshot(), before) is None
    tier._luck = Luck()
    while not engine.step().finished:
        pass
    assert_drained(engine)
