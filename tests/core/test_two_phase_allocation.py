"""Every group's hits are touched before any group takes blocks for external tokens: the cases of vLLM PR 44409.

Interleaved, group by group, the first group's fresh blocks are hits that the next group has not touched yet: they lie
at the head of the free queue, and no request holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from check.mutations import GroupAfterGroup
from driving import TOKEN_BUDGET_EDITIONS
from fake_tier import FakeTier
from labengine.config import GroupSpec
from labengine.core.editions import EDITIONS
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from workbench import Workbench, full, window

PREFIX = list(range(100, 132))  # eight blocks of four in each group; the windows need the last four
EXTERNAL = list(range(200, 208))  # two more, for the external tier to fill
NEXT_TOKEN = 0

GROUPS = {"full + window": [full(4), window(4, 16)], "three groups": [full(4), window(4, 16), window(4, 16)]}


def interleaved(edition: str) -> Parts:
    """The edition as vLLM was before: each group touches its hits and takes its fresh blocks, then the next."""

    interleaved = type("Interleaved", (GroupAfterGroup, EDITIONS[edition].kv_cache_manager), {})
    return Parts(kv_cache_manager=interleaved).overriding(EDITIONS[edition])


def new_request(groups: list[GroupSpec], parts: Parts) -> tuple[Workbench, Request]:
    """The prefix filled the whole pool and was given back, group 0's blocks first; now a longer prompt comes."""
    core = Workbench(groups, num_blocks=8 * len(groups), edition=parts)
    core.cache(PREFIX)
    return core, core.request([*PREFIX, *EXTERNAL, NEXT_TOKEN])


def preempted_request(groups: list[GroupSpec], parts: Parts) -> tuple[Workbench, Request]:
    """It ran, lost its blocks, and comes again; since then other requests took what was before them in the queue."""
    hits = 8 + 4 * (len(groups) - 1)
    core = Workbench(groups, num_blocks=hits + 7 * len(groups), edition=parts)
    core.cache(PREFIX)
    request = core.request([*PREFIX, *EXTERNAL, NEXT_TOKEN])
    core.admit(request, num_tokens=len(PREFIX) + 1)
    core.manager.free(request, "preempted")
    request.num_computed_tokens = 0
    core.cache(range(1000, 1000 + 7 * 4))
    return core, request


Start = Callable[[list[GroupSpec], Parts], tuple[Workbench, Request]]


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=GROUPS)
def groups(request: pytest.FixtureRequest) -> list[GroupSpec]:
    return GROUPS[request.param]


@pytest.fixture(params=[new_request, preempted_request], ids=["new", "preempt and reallocate"])
def start(request: pytest.FixtureRequest) -> Start:
    return request.param  # type: ignore[no-any-return]


def doubled(core: Workbench, request: Request) -> list[int]:
    """Blocks in more than one place of the request's tables."""
    counts = Counter(i for table in request.block_tables for i in table if i != core.pool.null_block)
    return [block_id for block_id, count in counts.items() if count > 1]


def lost_hits(core: Workbench, request: Request, hit: Hit) -> list[int]:
    """Blocks that were found in the cache, and hold that content no more."""
    return [
        local.transfer.block_id for local in core.manager.local_hits(request, hit.num_tokens) if not local.is_intact
    ]


def test_the_hits_lie_at_the_head_of_the_queue(start: Start, groups: list[GroupSpec], edition: str) -> None:
    """Else neither order could do any harm, and the tests below would show nothing."""
    core, request = start(groups, EDITIONS[edition])
    hit = core.manager.find_prefix(request)
    assert hit.num_tokens == len(PREFIX)
    after_group_0 = [block_id for block_id in core.queue if block_id not in hit.block_ids[0]]
    assert set(after_group_0[:2]) <= set(hit.block_ids[1])


def test_in_two_phases_no_block_is_in_two_tables(start: Start, groups: list[GroupSpec], edition: str) -> None:
    core, request = start(groups, EDITIONS[edition])
    hit = core.admit(request, len(EXTERNAL))
    assert doubled(core, request) == lost_hits(core, request, hit) == []
    held = [i for table in request.block_tables for i in table if i != core.pool.null_block]
    assert [core.pool.blocks[block_id].ref_count for block_id in held] == [1] * len(held)
    assert not set(held) & set(core.queue)
    assert [table[6:8] for table in request.block_tables[1:]] == [list(ids[6:8]) for ids in hit.block_ids[1:]]


def test_group_by_group_a_block_is_in_two_groups(start: Start, groups: list[GroupSpec], edition: str) -> None:
    core, request = start(groups, interleaved(edition))
    hit = core.admit(request, len(EXTERNAL))
    assert len(doubled(core, request)) == 2
    assert set(doubled(core, request)) <= set(lost_hits(core, request, hit)), "the hit's KV will be overwritten"
    assert [core.pool.blocks[block_id].ref_count for block_id in doubled(core, request)] == [2, 2]


def test_the_connector_notices_group_by_group(start: Start, groups: list[GroupSpec], edition: str) -> None:
    """The symptom as it was reported: an assertion in the connector (vLLM issue 43884)."""
    for parts in (EDITIONS[edition], interleaved(edition)):
        core, request = start(groups, parts)
        hit = core.admit(request, len(EXTERNAL))
        loads = core.manager.external_blocks(request, hit.num_tokens, hit.num_tokens + len(EXTERNAL))
        local = core.manager.local_hits(request, hit.num_tokens)
        if parts is EDITIONS[edition]:
            assert list(FakeTier().update_state_after_alloc(request, loads, local)) == loads
        else:
            with pytest.raises(AssertionError, match="was reallocated before it was touched"):
                FakeTier().update_state_after_alloc(request, loads, local)


def test_blocks_that_the_window_moved_past_are_not_touched(groups: list[GroupSpec], edition: str) -> None:
    """Touching every hit at once (vLLM PR 33775) would hold on to blocks that are in no table."""
    core, request = new_request(groups, EDITIONS[edition])
    hit = core.admit(request, len(EXTERNAL))
    assert [len(ids) - ids.count(core.pool.null_block) for ids in hit.block_ids[1:]] == [4] * (len(groups) - 1)
    for table in request.block_tables[1:]:
        assert table[:6] == [core.pool.null_block] * 6
    num_entries = sum(i != core.pool.null_block for table in request.block_tables for i in table)
    assert sum(block.ref_count for block in core.pool.blocks) == num_entries == core.pool.num_used


def test_without_external_tokens_both_orders_are_the_same(start: Start, groups: list[GroupSpec], edition: str) -> None:
    tables = []
    for parts in (EDITIONS[edition], interleaved(edition)):
        core, request = start(groups, parts)
        core.admit(request, num_tokens=len(PREFIX) + 1)
        assert doubled(core, request) == []
        tables.append(request.block_tables)
    assert tables[0] == tables[1]


def test_production_is_what_the_editions_use() -> None:
    methods = {EDITIONS[name].kv_cache_manager.allocate_computed for name in TOKEN_BUDGET_EDITIONS}
    assert methods == {KVCacheManager.allocate_computed}
