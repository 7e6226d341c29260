"""Blocks that leave the window: the entry becomes null, the block is free, its content stays known."""

from __future__ import annotations

import pytest

from driving import recorded
from labengine.events import BlockFreed
from workbench import Workbench, full, window

LONG = range(100, 112)  # twelve tokens: three blocks of four


@pytest.mark.parametrize(
    ("window_size", "num_computed", "num_dropped"),
    [
        (4, 6, 0),  # token 6 reads 3..6: block 0 is needed for token 3
        (4, 7, 1),  # token 7 reads 4..7
        (4, 10, 1),
        (4, 11, 2),
        (1, 4, 1),  # token 4 reads itself
        (1, 11, 2),
        (5, 7, 0),  # token 7 reads 3..7
        (5, 8, 1),
        (12, 12, 0),
        (9, 12, 1),
    ],
)
def test_a_block_leaves_when_the_next_token_reads_none_of_it(
    window_size: int, num_computed: int, num_dropped: int
) -> None:
    core = Workbench([window(4, window_size)])
    request = core.request(range(num_computed))
    core.admit(request)
    core.compute(request)
    before = list(request.block_tables[0])
    assert core.decode(request)
    after = request.block_tables[0]
    assert after[: len(before)] == [-1] * num_dropped + before[num_dropped:]


def test_the_entry_becomes_null_and_the_table_keeps_its_length() -> None:
    core = Workbench([full(4), window(4, 4)])
    request = core.run(LONG)
    core.decode(request)
    assert request.block_tables == [[0, 1, 2, 6], [-1, -1, 5, 7]]


def test_edition_vllm_pads_with_block_0() -> None:
    core = Workbench([full(4), window(4, 4)], edition="vllm")
    request = core.run(LONG)
    core.decode(request)
    assert request.block_tables == [[1, 2, 3, 7], [0, 0, 6, 8]]
    assert 0 not in core.queue


def test_dropped_blocks_are_queued_the_last_one_first() -> None:
    """As when a table is freed: of a chain's blocks the tail is the better victim."""
    core = Workbench([window(4, 4)], num_blocks=6)
    request = core.run(LONG)
    assert core.queue == [3, 4, 5]
    core.decode(request)
    assert request.block_tables == [[-1, -1, 2, 3]]
    assert core.queue == [4, 5, 1, 0]


def test_dropped_blocks_without_content_go_to_the_head() -> None:
    """With blocks of 4 beside blocks of 8 no hit ends at an odd block; a window of one block keeps only the even."""
    core = Workbench([full(8), window(4, 2)], num_blocks=12)
    request = core.run(range(17))
    assert request.block_tables == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert core.cached(1) == [8, 16]
    core.decode(request)
    assert request.block_tables[1] == [-1, -1, -1, -1, 7]
    assert core.queue == [5, 3, 8, 9, 10, 11, 6, 4]


def test_a_dropped_block_is_still_a_hit() -> None:
    core = Workbench([window(4, 4)])
    request = core.run(LONG)
    core.decode(request)
    assert core.hit([*LONG[:8], 0]).block_ids == ((-1, 1),)


def test_each_block_is_dropped_once() -> None:
    core = Workbench([window(2, 2)])
    freed = recorded(core.hooks)
    request = core.run(range(2))
    for _ in range(8):
        core.decode(request)
    dropped = [event for event in freed if isinstance(event, BlockFreed)]
    assert [(event.index, event.reason) for event in dropped] == [(index, "window") for index in range(4)]
    assert request.block_tables[0][:4] == [-1, -1, -1, -1]


def test_a_shared_block_is_only_let_go() -> None:
    core = Workbench([window(4, 4)])
    first, second = core.run(range(9)), core.run(range(6))
    assert (first.block_tables, second.block_tables) == ([[0, 1, 2]], [[0, 3]])
    core.decode(first)
    assert first.block_tables == [[-1, 1, 2]]
    assert core.pool.blocks[0].ref_count == 1
    assert 0 not in core.queue


def test_blocks_that_left_stay_free_when_the_allocation_fails() -> None:
    core = Workbench([full(4), window(4, 4)], num_blocks=6)
    request = core.run(LONG)
    assert core.queue == []
    request.token_ids.extend(range(8))
    assert not core.manager.allocate(request, request.num_tokens)
    assert request.block_tables == [[0, 1, 2], [-1, -1, 5]]
    assert core.queue == [4, 3]


def test_a_freed_table_gives_back_only_what_it_held() -> None:
    core = Workbench([full(4), window(4, 4)])
    request = core.run(LONG)
    core.decode(request)
    num_free = core.pool.num_free
    core.free(request)
    assert request.block_tables == [[], []]
    assert core.pool.num_free == num_free + 6 == 32
