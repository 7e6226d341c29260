"""What limits admission beyond free blocks: the watermark, a long prompt's share, and what a window holds."""

from __future__ import annotations

import pytest

from driving import TOKEN_BUDGET_EDITIONS, num_null_blocks, small_engine, tables
from labengine.config import ConfigError, EngineConfig, SamplingParams
from labengine.core.editions import EDITIONS
from labengine.engine.engine import Engine
from workbench import Workbench, full, window


def prompt(num_tokens: int, first: int = 0) -> list[int]:
    return [first * 1000 + i for i in range(num_tokens)]


def tokens(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
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


def test_admitting_has_to_leave_the_watermark_free(edition: str) -> None:
    assert scheduled_beside_a_running_one(edition, 0.0) == [0, 1]
    assert scheduled_beside_a_running_one(edition, 0.1) == [0, 1], "one block of ten is left"
    assert scheduled_beside_a_running_one(edition, 0.2) == [0]


def test_a_fraction_of_a_block_is_rounded_down(edition: str) -> None:
    assert scheduled_beside_a_running_one(edition, 0.19) == [0, 1]


def test_the_only_request_may_use_the_full_pool(edition: str) -> None:
    engine = small_engine(4, 4, edition, watermark=0.9)
    engine.add(prompt(16), tokens(1))
    assert engine.step().finished == (0,)


def test_a_running_request_may_go_below_the_watermark(edition: str) -> None:
    engine = small_engine(4, 4, edition, watermark=0.5)
    engine.add(prompt(8), tokens(9))
    while report := engine.step():
        assert not report.preempted
    assert engine.requests[0].finish_reason == "length"


@pytest.mark.parametrize("watermark", [-0.1, 1.0, float("nan"), "half"])
def test_a_watermark_is_a_share(watermark: float) -> None:
    with pytest.raises(ConfigError, match="watermark is a share of the pool"):
        EngineConfig(watermark=watermark)


# -- the share of a long prompt ----------------------------------------------------------------------------------------


def steps(engine: Engine) -> list[dict[int, int]]:
    """Tokens computed per request, step by step."""
    found = []
    while report := engine.step():
        found.append(report.scheduled)
    return found


def test_a_long_prompt_beside_others_gets_the_threshold_per_step(edition: str) -> None:
    engine = small_engine(16, 4, edition, long_prefill_token_threshold=4)
    engine.add(prompt(10), tokens(1))
    engine.add(prompt(3, 1), tokens(3))
    assert steps(engine) == [{0: 4, 1: 3}, {0: 4, 1: 1}, {0: 2, 1: 1}]


def test_alone_it_gets_the_full_budget(edition: str) -> None:
    engine = small_engine(16, 4, edition, long_prefill_token_threshold=4)
    engine.add(prompt(10), tokens(1))
    assert steps(engine) == [{0: 10}]


def test_what_the_threshold_leaves_goes_to_those_behind(edition: str) -> None:
    engine = small_engine(16, 4, edition, budget=6, long_prefill_token_threshold=4)
    engine.add(prompt(10), tokens(1))
    engine.add(prompt(10, 1), tokens(1))
    assert steps(engine)[:2] == [{0: 4, 1: 2}, {0: 4, 1: 2}]


# -- what a window holds -----------------------------------------------------------------------------------------------


def test_a_window_counts_for_what_it_holds_at_one_time() -> None:
    """The tokens of a step, those before them in the window, and one block for the window's uneven start."""
    (group,) = Workbench([window(4, 8)], budget=10).manager.groups
    assert [group.max_blocks_held(n) for n in (1, 4, 5, 16, 24, 25, 1000)] == [1, 1, 2, 4, 6, 6, 6]


def test_a_prompt_far_longer_than_the_pool_runs_in_a_window(edition: str) -> None:
    """vLLM issue 39734: counted whole, it could never be admitted."""
    engine = small_engine(5, 4, edition, budget=4, groups=(window(4, 8),))
    engine.add(prompt(60), tokens(20))
    while engine.step():
        assert engine.num_used_blocks <= 4
    assert engine.requests[0].finish_reason == "length"


def test_full_attention_beside_it_counts_completely(edition: str) -> None:
    """15 blocks for sixty tokens, and the window's four."""
    engine = small_engine(18, 4, edition, budget=4, groups=(full(4), window(4, 8)))
    with pytest.raises(ConfigError, match="needs 19 blocks, and the pool has 18"):
        engine.add(prompt(60), tokens(1))
    engine.add(prompt(56), tokens(1))
    assert engine.step()


def test_a_chunk_takes_its_blocks_from_every_group(edition: str) -> None:
    engine = small_engine(16, 4, edition, budget=8, groups=(full(4), window(2, 2)))
    engine.add(prompt(12), tokens(1))
    engine.step()
    assert [len(table) for table in engine.snapshot().requests[0].block_tables] == [2, 4]
    assert len(tables(engine)[0]) == 2


def test_hits_that_are_free_count_as_blocks_to_take(edition: str) -> None:
    """Three cached blocks of eight are hit. Free ones leave room for five more; held by another, they cost nothing."""
    core = Workbench([full(4)], num_blocks=8, edition=edition)
    core.cache(prompt(12))
    for num_tokens, fits in ((32, True), (33, False)):
        request = core.request([*prompt(12), *prompt(num_tokens - 12, 1)])
        assert core.manager.can_admit(request, core.manager.find_prefix(request)) is fits
    holder = core.run([*prompt(12), 5])
    assert core.pool.num_free == 4
    request = core.request([*prompt(12), *prompt(16, 2)])
    assert core.manager.can_admit(request, core.manager.find_prefix(request))
    core.free(holder)
