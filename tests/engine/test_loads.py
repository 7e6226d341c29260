"""KV from an external tier that delivers at once: loaded before the forward pass, saved after it."""

from __future__ import annotations

from typing import TypeVar

import pytest

from driving import TOKEN_BUDGET_EDITIONS, assert_drained, difference, recorded, small_engine
from fake_tier import FakeTier, Luck, TierDown
from labengine.config import ConfigError, SamplingParams
from labengine.core.connector import LoadError
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.events import (
    BlockAllocated,
    BlocksLoaded,
    BlocksSaved,
    Event,
    ExternalHit,
    ForwardRan,
    LoadFailed,
    PrefixHit,
    StepRolledBack,
    StepStarted,
)
from labengine.record.hooks import Hooks
from workbench import full, window

PROMPT = list(range(100, 110))  # two full blocks of four, and two tokens
E = TypeVar("E", bound=Event)

ONE = SamplingParams(max_tokens=1)
THREE = SamplingParams(max_tokens=3)


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def engine_with_tier(tier: FakeTier, edition: str = "labengine", **settings: object) -> tuple[Engine, list[Event]]:
    """An empty pool over a tier, and the events from now on."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    return small_engine(16, 4, edition, hooks=hooks, connector=tier, **settings), events  # type: ignore[arg-type]


def filled_tier(luck: Luck | None = None, groups: tuple[object, ...] = ()) -> FakeTier:
    """A tier that an engine has saved the prompt's blocks to."""
    tier = FakeTier(luck)
    engine, _ = engine_with_tier(tier, groups=groups)
    engine.add(PROMPT, ONE)
    engine.step()
    return tier


def of(kind: type[E], events: list[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def test_full_blocks_are_saved_after_the_step_that_fills_them() -> None:
    engine, events = engine_with_tier(tier := FakeTier())
    engine.add(PROMPT, SamplingParams(max_tokens=4))
    num_saved = []
    while engine.step():
        num_saved.append(sum(len(event.transfers) for event in of(BlocksSaved, events)))
    assert num_saved == [2, 2, 3, 3]
    assert len(tier.blocks) == 3
    kinds = [type(event) for event in events]
    assert kinds.index(ForwardRan) < kinds.index(BlocksSaved)


def test_another_engine_loads_them_before_its_forward_pass(edition: str) -> None:
    engine, events = engine_with_tier(filled_tier(), edition)
    engine.add(PROMPT, ONE)
    report = engine.step()
    assert report.scheduled == {0: 2}, "eight tokens of ten came from the tier"
    kinds = [type(event) for event in events]
    order = [kinds.index(kind) for kind in (PrefixHit, ExternalHit, BlockAllocated, BlocksLoaded, ForwardRan)]
    assert order == sorted(order)
    assert of(ExternalHit, events) == [ExternalHit(0, 8)]


def test_what_is_in_the_pool_is_not_loaded() -> None:
    engine, events = engine_with_tier(filled_tier())
    for _ in range(2):
        engine.add(PROMPT, ONE)
        engine.step()
    assert [event.num_tokens for event in of(PrefixHit, events)] == [0, 8]
    assert len(of(BlocksLoaded, events)) == 1


def test_after_a_reset_the_tier_still_knows() -> None:
    engine, events = engine_with_tier(FakeTier())
    engine.add(PROMPT, ONE)
    engine.step()
    assert engine.reset_prefix_cache()
    engine.add(PROMPT, ONE)
    assert engine.step().scheduled == {1: 2}
    assert of(ExternalHit, events) == [ExternalHit(1, 8)]


def test_what_the_tier_has_is_not_saved_again() -> None:
    tier = FakeTier()
    engine, events = engine_with_tier(tier)
    for _ in range(2):
        engine.add(PROMPT, ONE)
        engine.step()
        engine.reset_prefix_cache()
    assert len(of(BlocksSaved, events)) == 1
    assert tier.met["save"] == 1


def test_salts_separate_in_the_tier_too() -> None:
    engine, events = engine_with_tier(filled_tier())
    engine.add(PROMPT, RequestOptions(ONE, salted((), "x")))
    engine.step()
    assert of(ExternalHit, events) == []


def test_a_window_loads_only_what_it_reads(edition: str) -> None:
    groups = (full(4), window(4, 4))
    engine, events = engine_with_tier(filled_tier(groups=groups), edition, groups=groups)
    engine.add(PROMPT, ONE)
    engine.step()
    (loaded,) = of(BlocksLoaded, events)
    assert [transfer[:2] for transfer in loaded.transfers] == [(0, 0), (0, 1), (1, 1)]


def test_two_requests_of_one_step_load_into_blocks_of_their_own() -> None:
    engine, events = engine_with_tier(filled_tier())
    engine.add(PROMPT, THREE)
    engine.add(PROMPT, THREE)
    engine.step()
    loads = of(BlocksLoaded, events)
    ids = [transfer[2] for event in loads for transfer in event.transfers]
    assert len(ids) == len(set(ids)) == 4
    tables = [r.block_tables[0] for r in engine.snapshot().requests.values()]
    assert tables[0][:2] == tables[1][:2], "and the step merges them"


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243", "nano-vllm-2025-07"])
def test_nano_vllm_has_no_external_tier(edition: str) -> None:
    with pytest.raises(ConfigError, match="this edition has no external tier"):
        engine_with_tier(FakeTier(), edition)


# -- a load that fails -------------------------------------------------------------------------------------------------


def test_a_failed_load_is_computed_instead_in_the_same_step(edition: str) -> None:
    engine, events = engine_with_tier(filled_tier(Luck(fails=1)), edition)
    engine.add(PROMPT, ONE)
    report = engine.step()
    assert (report.step, report.finished) == (1, (0,))
    assert 2 < report.scheduled[0] <= 10
    assert [type(e) for e in events if isinstance(e, (StepStarted, StepRolledBack, LoadFailed))][:3] == [
        StepStarted,
        StepRolledBack,
        LoadFailed,
    ]
    assert of(BlocksLoaded, events) == []
    assert_drained(engine)


def test_the_tier_forgets_what_it_could_not_deliver() -> None:
    tier = filled_tier(Luck(fails=1))
    engine, _ = engine_with_tier(tier)
    engine.add(PROMPT, ONE)
    phases = engine.phases()
    assert next(phases) == "schedule"
    assert len(tier.blocks) < 2
    assert list(phases)[-1] == "update"
    assert len(tier.blocks) == 2, "computed anew, and saved again"


class LosesTheSecond(FakeTier):
    """Its second block cannot be read."""

    def _failing(self, loads):  # type: ignore[no-untyped-def]
        return [load for load in loads if load.index == 1]


def test_a_load_that_comes_back_short_is_computed_completely() -> None:
    tier = LosesTheSecond()
    tier.blocks.update(filled_tier().blocks)
    engine, _ = engine_with_tier(tier)
    engine.add(PROMPT, ONE)
    assert engine.step().scheduled == {0: 10}
    assert (tier.met["short load"], tier.met["load"]) == (1, 0)
    assert len(tier.blocks) == 2, "the one that was lost is there again"


class NeverForgets(FakeTier):
    """It says that it has what it cannot deliver."""

    def forget(self, transfers: object) -> None:
        """Not done."""


def test_a_tier_that_promises_the_same_again_is_not_believed_twice_in_a_step() -> None:
    tier = NeverForgets(Luck(fails=1))
    tier.blocks.update(filled_tier().blocks)
    for number in range(1, 4):
        engine, _ = engine_with_tier(tier)
        engine.add(PROMPT, ONE)
        assert engine.step().scheduled == {0: 10}
        assert tier.met["failed load"] == number


def test_an_error_that_names_nothing_is_none() -> None:
    with pytest.raises(ValueError):
        LoadError((), "no reason")


# -- a tier that raises ------------------------------------------------------------------------------------------------


def raising_tier(method: str) -> FakeTier:
    """It holds the prompt's blocks, and raises whenever this method is called."""
    tier = FakeTier(Luck(raises=1, methods=(method,)))
    tier.blocks.update(filled_tier().blocks)
    return tier


def test_a_tier_that_cannot_be_asked_is_not_waited_for(edition: str) -> None:
    engine, events = engine_with_tier(tier := raising_tier("has"), edition)
    engine.add(PROMPT, ONE)
    assert engine.step().scheduled == {0: 10}
    assert of(ExternalHit, events) == []
    assert any("the look-up failed: TierDown" in line for line in tier.failures)
    assert_drained(engine)


def test_whatever_a_load_raises_the_request_is_computed(edition: str) -> None:
    engine, events = engine_with_tier(tier := raising_tier("start_load_kv"), edition)
    engine.add(PROMPT, ONE)
    assert engine.step().scheduled == {0: 10}
    assert [event.reason for event in of(LoadFailed, events)] == ["TierDown: start_load_kv"]
    assert tier.failures == ["TierDown: start_load_kv"]
    assert_drained(engine)


@pytest.mark.parametrize("method", ["update_state_after_alloc", "save_kv"])
def test_what_may_not_raise_takes_the_step_with_it_and_leaves_no_trace(edition: str, method: str) -> None:
    engine, _ = engine_with_tier(tier := raising_tier(method), edition)
    if method == "save_kv":
        tier.blocks.clear()
    engine.add(PROMPT, ONE)
    before = engine.snapshot()
    for _ in range(3):
        with pytest.raises(TierDown):
            engine.step()
        assert difference(engine.snapshot(), before) is None
        assert not tier._loading
    engine.abort(0)
    assert_drained(engine)
