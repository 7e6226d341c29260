from __future__ import annotations

import json
import re

import pytest

from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import VLLM
from labengine.core.journal import Journal
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.engine.external import Delayed, HostStore
from labengine.events import BlockTouched, RequestPreempted
from labengine.lab import Lab
from labengine.record.hooks import Hooks
from labengine.scenarios import bug
from labengine.scenarios.two_phase_experiments import Preempted, PreemptedThreeGroups
from labengine.scenarios.vllm_44409_columns import BulkTouchKVCacheManager, InterleavedKVCacheManager, second_entries

SCENARIO = bug("vllm-44409")
INTERLEAVED, BULK_TOUCH = (
    Parts(manager).overriding(VLLM) for manager in (InterleavedKVCacheManager, BulkTouchKVCacheManager)
)

# -- the reviewers' cases: hits at the head of the queue, tokens in the tier behind them -------------------------------

SIZE = 16
NUM_LOCAL, NUM_EXTERNAL, NUM_NEW = 5, 2, 1


def manager_of(parts: Parts, num_groups: int) -> KVCacheManager:
    """An empty pool of 31 blocks, and a window that skips nothing."""
    groups = (GroupSpec(SIZE), *[GroupSpec(SIZE, "sliding_window", 100 * SIZE)] * (num_groups - 1))
    return parts.assemble(EngineConfig(31, groups), Hooks(), Journal()).manager


def admit(manager: KVCacheManager, request: Request) -> None:
    """With five hits per group: the blocks that the queue gives away next."""
    num_groups = len(manager.groups)
    head = list(manager.pool.free_queue)[: num_groups * NUM_LOCAL]
    hits = tuple(tuple(head[i * NUM_LOCAL : (i + 1) * NUM_LOCAL]) for i in range(num_groups))
    num_tokens = (NUM_LOCAL + NUM_EXTERNAL + NUM_NEW) * SIZE
    assert manager.admit(request, Hit(NUM_LOCAL * SIZE, hits), num_tokens, NUM_EXTERNAL * SIZE)


def request_for(manager: KVCacheManager) -> Request:
    num_tokens = (NUM_LOCAL + NUM_EXTERNAL + NUM_NEW) * SIZE
    return Request(0, list(range(num_tokens)), SamplingParams(), 0, len(manager.groups))


def num_in_two_tables(manager: KVCacheManager, request: Request) -> int:
    held = [block_id for table in request.block_tables for block_id in table]
    assert all(manager.pool.blocks[block_id].ref_count == held.count(block_id) for block_id in held)
    return len(held) - len(set(held))


@pytest.mark.parametrize(("parts", "in_two_tables"), [(VLLM, 0), (INTERLEAVED, 2)])
def test_full_and_window(parts: Parts, in_two_tables: int) -> None:
    manager = manager_of(parts, 2)
    request = request_for(manager)
    admit(manager, request)
    assert num_in_two_tables(manager, request) == in_two_tables


@pytest.mark.parametrize(("parts", "in_two_tables"), [(VLLM, 0), (INTERLEAVED, 4)])
def test_three_groups(parts: Parts, in_two_tables: int) -> None:
    manager = manager_of(parts, 3)
    request = request_for(manager)
    admit(manager, request)
    assert num_in_two_tables(manager, request) == in_two_tables


@pytest.mark.parametrize("num_groups", [2, 3])
@pytest.mark.parametrize(("parts", "is_right"), [(VLLM, True), (INTERLEAVED, False)])
def test_preempted_and_allocated_again(parts: Parts, is_right: bool, num_groups: int) -> None:
    manager = manager_of(parts, num_groups)
    request = request_for(manager)
    for _ in range(2):
        admit(manager, request)
        assert (num_in_two_tables(manager, request) == 0) is is_right
        manager.free(request, "preempted")
        assert request.block_tables == [[] for _ in range(num_groups)]
        assert manager.pool.num_free == manager.pool.num_usable


def test_the_broken_order_is_one_small_method() -> None:
    own = {name for name in vars(InterleavedKVCacheManager) if not name.startswith("__")}
    assert own == {"allocate_computed"}


# -- in a whole engine -------------------------------------------------------------------------------------------------


def test_the_long_prompts_tables_are_upstreams() -> None:
    expected = {
        "interleaved": (((1, 2, 5, 4, 7), (4, 5, 6, 3, 8)), {4: 2, 5: 2}),
        "two-phase": (((1, 2, 6, 3, 9), (4, 5, 7, 8, 10)), {}),
    }
    for column, (tables, shared) in expected.items():
        with SCENARIO.lab(column) as lab:
            SCENARIO.set_the_stage(lab)
            long = lab.add(token_ids=SCENARIO.prompts(lab)[0], max_tokens=2)
            lab.step()
            snapshot = lab.snapshot()
            assert snapshot.requests[long].block_tables == tables
            assert {b.block_id: b.ref_count for b in snapshot.blocks if b.ref_count > 1} == shared


def test_the_table() -> None:
    assert SCENARIO.table().to_dict() == {
        "interleaved": counts(doubled=2, misread=2, loaded=4, found=0, leaked=0),
        "two-phase": counts(doubled=0, misread=0, loaded=4, found=16, leaked=0),
        "bulk touch": counts(doubled=0, misread=0, loaded=4, found=16, leaked=2),
        "clamp": counts(doubled=2, misread=2, loaded=8, found=0, leaked=0),
    }


def counts(*, doubled: int, misread: int, loaded: int, found: int, leaked: int) -> dict[str, int]:
    return {
        "blocks in two tables": doubled,
        "blocks misread": misread,
        "blocks loaded for the long prompt": loaded,
        "tokens that the next one finds": found,
        "blocks never given back": leaked,
    }


def test_three_groups_double_four_blocks() -> None:
    table = SCENARIO.experiments["three groups"].table()
    assert {name: column["blocks in two tables"] for name, column in table.columns.items()} == {
        "interleaved": 4,
        "two-phase": 0,
        "bulk touch": 0,
        "clamp": 4,
    }


@pytest.mark.parametrize(("experiment", "doubled"), [(Preempted(), 2), (PreemptedThreeGroups(), 3)])
def test_preemption_alone_leads_there(experiment: Preempted, doubled: int) -> None:
    """No second engine, no queue that was prepared: the second admission of the request that was preempted."""
    with experiment.played("interleaved") as lab:
        assert lab.timeline is not None
        touched = [event for _, event in second_entries(lab)]
        first = next(number for number, _ in second_entries(lab))
        [preempted] = lab.timeline.of_kind(RequestPreempted)
        assert len(touched) == doubled == experiment.measure(lab)["blocks misread"]
        assert {event.request_id for event in touched} == {preempted.request_id}
        assert preempted in lab.timeline.events(0, first)
    assert experiment.measured("two-phase") == {"preemptions": 1, "blocks in two tables": 0, "blocks misread": 0}
    assert experiment.measured("bulk touch") == experiment.measured("two-phase")


def test_two_phases_break_no_rule_and_a_bulk_touch_none_of_reading_or_writing() -> None:
    """The blocks that a bulk touch leaks are reported in the step that takes them, in which no event names them."""
    with SCENARIO.played("two-phase") as lab:
        assert lab.check() == []
    with SCENARIO.played("bulk touch") as lab:
        assert {(v.rule, v.step) for v in lab.violations} == {("said", 5), ("ref_count", 5)}
        said = [violation for violation in lab.violations if violation.rule == "said"]
        assert all("BulkTouchKVCacheManager.allocate_computed" in violation.message for violation in said)
        assert lab.check() == lab.violations


# -- the symptom -------------------------------------------------------------------------------------------------------


REFUSED = "request 6 (group 1, entry 0) needs block 4 as a cache hit, but the block was reallocated before"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_tier_that_looks_refuses_and_the_step_never_happened(is_late: bool) -> None:
    """The assert of issue 43884, for loads at once and for loads that come late, as vLLM's do."""
    tier = Delayed(HostStore()) if is_late else HostStore()
    with SCENARIO.columns[0].lab("simulated", {**SCENARIO.settings, "external": tier}) as lab:
        SCENARIO.set_the_stage(lab)
        lab.add(token_ids=SCENARIO.prompts(lab)[0], max_tokens=2)
        before = lab.snapshot()
        for _ in range(2):
            with pytest.raises(AssertionError, match=re.escape(REFUSED)):
                lab.step()
            assert lab.snapshot() == before and lab.check() == []
    assert SCENARIO.symptom(is_late=is_late).startswith(f"AssertionError: {REFUSED}")


@pytest.mark.parametrize("is_late", [False, True])
def test_the_same_tier_has_nothing_to_say_to_two_phases(is_late: bool) -> None:
    tier = Delayed(HostStore()) if is_late else HostStore()
    with Lab("simulated", edition="vllm", external=tier, **SCENARIO.settings) as lab:
        SCENARIO.play(lab)
        assert lab.violations == [] and lab.check() == []


# -- the rivals --------------------------------------------------------------------------------------------------------


def test_a_bulk_touch_counts_on_blocks_that_admission_did_not_count() -> None:
    """In two phases the pool is just large enough; with a bulk touch admission says yes, and a block is missing."""

    def tables(parts: Parts) -> list[list[int]]:
        groups = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))
        config = EngineConfig(9, groups, max_num_batched_tokens=4)
        manager = parts.assemble(config, Hooks(), Journal()).manager
        request = Request(0, list(range(17)), SamplingParams(), 0, 2)
        hit = Hit(8, ((1, 2), (3, 4)))
        assert manager.can_admit(request, hit, 8)
        assert manager.admit(request, hit, 17, 8)
        return request.block_tables

    assert tables(VLLM) == [[1, 2, 3, 4, 7], [0, 0, 5, 6, 8]]
    with pytest.raises(NotGrantedError, match="needs 1 block"):
        tables(BULK_TOUCH)


def test_conversations_run_dry_with_a_bulk_touch() -> None:
    table = SCENARIO.experiments["conversations"].table().to_dict()
    assert table["two-phase"] == {"conversations served": 20, "blocks never given back": 0}
    assert table["bulk touch"] == {"conversations served": 3, "blocks never given back": 6}


def test_the_clamp_loads_the_hit_again_into_blocks_that_two_groups_have() -> None:
    with SCENARIO.played("clamp") as lab:
        read = [violation for violation in lab.violations if violation.rule == "read"]
        assert [violation.block_ids for violation in read] == [(5,), (4,)]
        assert all("holds KV of group 1" in violation.message for violation in read)


# -- the verdict -------------------------------------------------------------------------------------------------------


def test_the_verdict() -> None:
    verdict = bug("vllm-44409").verdict()
    assert (verdict.id, verdict.reproduced, verdict.fixed, verdict.claim_holds) == ("vllm-44409", True, True, True)
    assert verdict.before["blocks in two tables"] == 2 and verdict.after["blocks in two tables"] == 0
    assert len(verdict.findings) == 5
    described = verdict.to_dict()
    assert json.loads(json.dumps(described)) == described
    assert described["first_wrong_event"]["event"]["kind"] == "BlockTouched"


def test_the_first_wrong_event_is_the_touch_that_the_watch_blames() -> None:
    with SCENARIO.broken() as lab:
        first = SCENARIO.first_wrong(lab)
        assert first is not None and lab.timeline is not None
        assert first.event == BlockTouched(block_id=4, request_id=6, group=1, index=0, ref_count=2)
        assert first.moment == min(v.first_event for v in lab.violations if v.first_event is not None)
        right, wrong = (lab.timeline.state(first.moment + i).snapshot().requests[6].block_tables for i in (0, 1))
        assert right == ((1, 2, 5, 4), ()) and wrong == ((1, 2, 5, 4), (4,))
    with SCENARIO.fixed() as lab:
        assert SCENARIO.first_wrong(lab) is None
