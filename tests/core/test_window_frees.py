"""Blocks leave their window, and with a retention interval fewer are cached; recorded runs of vLLM hold which."""

from __future__ import annotations

import pytest

from driving import TOKEN_BUDGET_EDITIONS, recorded
from labengine.config import ConfigError, EngineConfig
from labengine.events import BlockFreed
from workbench import Workbench, full, window

LONG = range(100, 112)  # twelve tokens: three blocks of four


def test_the_entry_becomes_null_and_the_table_keeps_its_length() -> None:
    core = Workbench([full(4), window(4, 4)])
    request = core.run(LONG)
    core.decode(request)
    assert request.block_tables == [[0, 1, 2, 6], [-1, -1, 5, 7]]


def test_each_block_is_dropped_once() -> None:
    core = Workbench([window(2, 2)])
    freed = recorded(core.hooks)
    request = core.run(range(2))
    for _ in range(8):
        core.decode(request)
    dropped = [event for event in freed if isinstance(event, BlockFreed)]
    assert [(event.index, event.reason) for event in dropped] == [(index, "window") for index in range(4)]
    assert request.block_tables[0][:4] == [-1, -1, -1, -1]


def test_blocks_that_left_stay_free_when_the_allocation_fails() -> None:
    core = Workbench([full(4), window(4, 4)], num_blocks=6)
    request = core.run(LONG)
    assert core.queue == []
    request.token_ids.extend(range(8))
    assert not core.manager.allocate(request, request.num_tokens)
    assert request.block_tables == [[0, 1, 2], [-1, -1, 5]]
    assert core.queue == [4, 3]


TEXT = list(range(100, 124))


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("interval", [None, 0, 4, 8, 12])
def test_an_equal_prompt_hits_as_much_at_any_interval(edition: str, interval: int | None) -> None:
    for num_tokens in range(1, 25):
        core = Workbench([full(4), window(4, 7)], edition=edition, retention_interval=interval)
        core.cache(TEXT[:num_tokens])
        assert core.hit(TEXT[:num_tokens]).num_tokens == (num_tokens - 1) // 4 * 4


@pytest.mark.parametrize("interval", [6, 10, -4])
def test_an_interval_is_a_multiple_of_all_groups_block_sizes(interval: int) -> None:
    with pytest.raises(ConfigError, match="retention_interval must be"):
        EngineConfig(groups=(full(4), window(2, 4)), retention_interval=interval)
