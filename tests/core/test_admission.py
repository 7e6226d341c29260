"""What is refused at admission, and what limits it; recorded runs of vLLM and nano-vLLM hold all other decisions."""

from __future__ import annotations

import pytest

from check.watched import watched
from driving import (
    ALL_EDITIONS,
    PACKING_EDITIONS,
    TOKEN_BUDGET_EDITIONS,
    num_last_slots,
    num_null_blocks,
    recorded,
    small_engine,
)
from labengine.config import ConfigError, EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS
from labengine.events import RequestScheduled
from labengine.record.hooks import Hooks
from workbench import Workbench, full, window


def prompt(num_tokens: int, first: int = 0) -> list[int]:
    return [first * 1000 + i for i in range(num_tokens)]


def tokens(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("edition", PACKING_EDITIONS)
def test_refusing_a_request_that_never_fits_names_the_blocks_it_needs(edition: str) -> None:
    engine = small_engine(4, 4, edition)
    enough = 5 + num_null_blocks(engine.parts)
    with pytest.raises(
        ConfigError, match=rf"14 tokens with max_tokens=4 needs 5 blocks.* has 4:.*num_blocks={enough} "
    ):
        engine.add(prompt(14), tokens(4))
    assert engine.snapshot().requests == {}
    engine.add(prompt(14), tokens(3 - num_last_slots(engine.parts)))  # whose KV is never written: 16 slots are enough
    while engine.step():
        pass
    assert engine.snapshot().requests[0].status == "finished"


def test_edition_vllm_counts_the_block_that_a_hit_ends_inside() -> None:
    """Played on vLLM 0.32: with 14 and 15 blocks its scheduler never admits the second request, with 16 it does."""
    groups = [GroupSpec(4, "sliding_window", 8), GroupSpec(8, "state"), GroupSpec(8)]
    for num_blocks in (15, 16):
        setup = watched(num_blocks, groups, "vllm", budget=64, hash_block_size=4)
        setup.add(*range(6), max_tokens=1)
        setup.run()
        if num_blocks == 15:
            with pytest.raises(ConfigError, match="needs 15 blocks, but the pool has 14"):
                setup.add(*range(25), max_tokens=1)
        else:
            setup.add(*range(25), max_tokens=1)
            setup.run()
            assert setup.engine.scheduler.is_idle
        setup.assert_clean()


def test_an_empty_prompt_is_refused(edition: str) -> None:
    with pytest.raises(ConfigError, match="the prompt must not be empty"):
        small_engine(edition=edition).add([], tokens(1))


def test_scheduled_events_have_the_share_of_the_step() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(16, 4, "labengine", budget=5, hooks=hooks)
    engine.add(prompt(7), tokens(2))
    while engine.step():
        pass
    scheduled = [(e.start, e.num_tokens, e.is_prefill) for e in events if isinstance(e, RequestScheduled)]
    assert scheduled == [(0, 5, True), (5, 2, True), (7, 1, False)]


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def token_budget_edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- the watermark -----------------------------------------------------------------------------------------------------


def scheduled_beside_a_running_one(edition: str, watermark: float) -> list[int]:
    """A pool of ten blocks, four of them in use, and a prompt of five."""
    engine = small_engine(10 - num_null_blocks(EDITIONS[edition]), 4, edition, watermark=watermark)
    assert engine.config.num_blocks == 10
    engine.add(prompt(14), tokens(2))
    engine.step()
    engine.add(prompt(20 - 4 * num_null_blocks(engine.parts), 1), tokens(1))
    return list(engine.step().scheduled)


def test_a_fraction_of_a_block_is_rounded_down(token_budget_edition: str) -> None:
    assert scheduled_beside_a_running_one(token_budget_edition, 0.19) == [0, 1]


def test_the_only_request_may_use_the_full_pool(token_budget_edition: str) -> None:
    engine = small_engine(4, 4, token_budget_edition, watermark=0.9)
    engine.add(prompt(16), tokens(1))
    assert engine.step().finished == (0,)


@pytest.mark.parametrize("watermark", [-0.1, 1.0, float("nan"), "half"])
def test_a_watermark_is_a_share(watermark: float) -> None:
    with pytest.raises(ConfigError, match="watermark must be a fraction of the pool"):
        EngineConfig(watermark=watermark)


# -- what a window holds -----------------------------------------------------------------------------------------------


def test_a_window_counts_for_what_it_holds_at_one_time() -> None:
    """The tokens of a step, those before them in the window, and one block for the window's uneven start."""
    (group,) = Workbench([window(4, 8)], budget=10).manager.groups
    assert [group.max_blocks_held(n) for n in (1, 4, 5, 16, 24, 25, 1000)] == [1, 1, 2, 4, 6, 6, 6]


def test_a_prompt_far_longer_than_the_pool_runs_in_a_window(token_budget_edition: str) -> None:
    """vLLM issue 39734: counted whole, it could never be admitted."""
    engine = small_engine(5, 4, token_budget_edition, budget=4, groups=(window(4, 8),))
    engine.add(prompt(60), tokens(20))
    while engine.step():
        assert engine.num_used_blocks <= 4
    assert engine.requests[0].finish_reason == "length"


def test_full_attention_beside_it_counts_completely(token_budget_edition: str) -> None:
    """15 blocks for sixty tokens, and the window's four."""
    engine = small_engine(18, 4, token_budget_edition, budget=4, groups=(full(4), window(4, 8)))
    with pytest.raises(ConfigError, match=r"needs 19 blocks, .* has 18"):
        engine.add(prompt(60), tokens(1))
    engine.add(prompt(56), tokens(1))
    assert engine.step()
