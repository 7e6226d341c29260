"""Edition labengine-radix: where the prefix tree is right and SGLang's and mini-sglang's are odd."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from driving import TREE_EDITIONS, Drive, LiveFold, assert_drained, recorded, small_engine
from labengine import ConfigError, Lab
from labengine.config import SamplingParams
from labengine.core.block_pool import BlockPool
from labengine.core.editions import SGLANG
from labengine.core.mini_sglang.scheduler import WorstCaseScheduler
from labengine.core.parts import Parts
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.prefix_lookup import TreeLookup
from labengine.core.request import RequestStatus
from labengine.engine.engine import Engine
from labengine.events import (
    BlockEvicted,
    BlockMerged,
    Event,
    NodeEvicted,
    NodeSplit,
    NodesTouched,
    PrefixHit,
    RequestForked,
    RequestPreempted,
    RequestScheduled,
)
from labengine.record.hooks import Hooks
from workloads import Workload, random_workload

ONE = SamplingParams(max_tokens=1)


def engine_of(num_blocks: int, block_size: int = 1, **settings: int) -> tuple[Engine, list[Event]]:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    return small_engine(num_blocks, block_size, "labengine-radix", hooks=hooks, **settings), events


def run(engine: Engine) -> None:
    while engine.step():
        pass


def kinds(events: list[Event]) -> Counter[type[Event]]:
    return Counter(map(type, events))


@pytest.mark.parametrize("edition", TREE_EDITIONS)
@pytest.mark.parametrize("seed", range(3))
def test_a_block_is_in_use_while_a_request_holds_it_and_not_when_only_the_tree_does(edition: str, seed: int) -> None:
    live = LiveFold(hooks := Hooks(strict=True))
    drive, num_kept = Drive(random_workload(seed), edition, hooks, checks_reads=False), 0
    engine = drive.engine
    for _ in drive.operations(Random(seed)):
        snapshot = engine.snapshot()
        # mini-sglang frees duplicates that a table goes on naming: pull request 142
        held = {b.block_id for b in snapshot.blocks if b.owners and b.ref_count}
        locked = {i for node in snapshot.tree if node.num_locks for i in node.block_ids}
        assert engine.num_used_blocks == snapshot.num_used_blocks == live.state.num_used_blocks == len(held | locked)
        num_kept += len(snapshot.pins) - len(locked)
    assert num_kept and engine.num_used_blocks == 0


def test_the_peak_leaves_out_what_only_the_tree_keeps() -> None:
    lab = Lab("simulated", num_blocks=16, block_size=1, edition="labengine-radix")
    for token_id in (1, 2):
        lab.add(token_ids=[token_id] * 4, max_tokens=1)
        lab.run()
    assert (lab.stats().peak_used_blocks, lab.stats().occupancy) == (4, 0)
    assert lab.snapshot().num_evictable_blocks == 8 and lab.reset_prefix_cache()


def test_a_refused_request_changes_neither_nodes_nor_recency() -> None:
    engine, events = engine_of(16)
    engine.add([1, 2, 3, 4, 5, 6], ONE)
    run(engine)
    engine.add([7] * 8, SamplingParams(max_tokens=3))
    engine.step()
    engine.add([1, 2, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9], ONE)  # hits three blocks, but nine more are not there yet
    before = engine.snapshot().tree
    events.clear()
    engine.step()
    assert engine.scheduler.waiting[0].request_id == 2, "it was looked up, and refused"
    assert engine.snapshot().tree == before
    assert not {NodeSplit, NodesTouched} & {*kinds(events)}
    run(engine)
    assert [e.num_tokens for e in events if isinstance(e, PrefixHit)] == [3]


def test_only_the_missing_blocks_are_evicted_from_the_end_of_a_leaf() -> None:
    engine, events = engine_of(12)
    engine.add(range(9), ONE)
    run(engine)
    engine.add([20, 21, 22, 23, 24, 25], ONE)  # three are free
    run(engine)
    assert kinds(events)[BlockEvicted] == 3
    engine.add([*range(9)], ONE)
    engine.step()
    assert [e.num_tokens for e in events if isinstance(e, PrefixHit)] == [0, 0, 6]


def test_a_prefix_outlives_what_continues_it_and_an_older_leaf_goes_first() -> None:
    engine, events = engine_of(10)
    for prompt in ([1, 2, 3, 4], [7, 8, 9], [1, 2, 5, 6, 0]):
        engine.add(prompt, ONE)
        run(engine)
    content = {block.block_id: block.token_ids[0] for block in engine.snapshot().blocks}
    engine.add([30, 31, 32, 33, 34], ONE)
    run(engine)
    evicted = [[content[i] for i in e.block_ids] for e in events if isinstance(e, NodeEvicted)]
    assert evicted == [[3, 4], [7, 8, 9]], "the third prompt has used 1 and 2 again, but not 3 and 4"


def test_a_chunk_is_shared_before_the_prompt_is_complete() -> None:
    engine, events = engine_of(20, budget=4)
    engine.add(range(12), ONE)
    engine.step()
    engine.step()
    engine.add([*range(8), 50], ONE)
    run(engine)
    assert [e.num_tokens for e in events if isinstance(e, PrefixHit)] == [0, 8]


def test_equal_prompts_of_one_step_end_in_one_copy_that_both_tables_name() -> None:
    engine, events = engine_of(12)
    for _ in range(2):
        engine.add(range(4), SamplingParams(max_tokens=3))
    engine.step()
    first_table, second_table = (request.block_tables[0] for request in engine.requests.values())
    assert first_table == second_table
    assert kinds(events)[BlockMerged] == 4
    run(engine)
    assert_drained(engine)


def two_that_fill_the_pool() -> tuple[Engine, list[Event]]:
    """Two requests with six blocks each of twelve: the next step preempts the second."""
    engine, events = engine_of(12)
    for token in (1, 2):
        engine.add([token] * 4, SamplingParams(max_tokens=6))
    for _ in range(3):
        engine.step()
    return engine, events


def test_a_preempted_request_hits_what_it_had_computed() -> None:
    engine, events = two_that_fill_the_pool()
    run(engine)
    assert [e.request_id for e in events if isinstance(e, RequestPreempted)] == [1]
    *_, again = (e for e in events if isinstance(e, PrefixHit))
    assert (again.request_id, again.num_tokens) == (1, 3), "of six, the other request needed three"
    assert_drained(engine)


def test_a_rollback_distrusts_a_preempted_request_only_from_the_overwritten_block_on() -> None:
    engine, _ = two_that_fill_the_pool()
    phases = engine.phases()
    assert [next(phases), next(phases)] == ["schedule", "forward"]
    phases.close()  # type: ignore[attr-defined]
    assert engine.requests[1].status is RequestStatus.PREEMPTED
    assert sum(len(node.block_ids) for node in engine.snapshot().tree) == 4 + 5, (
        "a prompt of the one, five of the other"
    )
    run(engine)
    assert_drained(engine)


def test_forks_share_the_parents_blocks_and_none_is_evicted_under_them() -> None:
    engine, events = engine_of(24)
    leader = engine.add(range(4), SamplingParams(max_tokens=8))
    for _ in range(3):
        engine.step()
    engine.branch(leader)
    engine.add([40] * 12, SamplingParams(max_tokens=2))
    run(engine)
    (forked,) = (e for e in events if isinstance(e, RequestForked))
    assert forked.num_tokens == 6
    assert_drained(engine)


def test_what_it_lacks_is_refused_in_a_sentence_before_anything_changes() -> None:
    lab = Lab("simulated", edition="labengine-radix", num_blocks=8, block_size=4)
    lab.add(token_ids=[1, 2, 3], max_tokens=4)
    lab.step()
    before = lab.snapshot()
    with pytest.raises(ConfigError, match="no beam search"):
        lab.add(token_ids=[1, 2, 3], beams=2)
    with pytest.raises(ConfigError, match="hand"):
        lab.hand_over(0, Lab("simulated", num_blocks=8, block_size=4))
    assert lab.snapshot() == before
    with pytest.raises(ConfigError, match="no external tier"):
        Lab("simulated", edition="labengine-radix", external="host")
    with pytest.raises(ConfigError, match="hash_block_size must be its block size"):
        Lab("simulated", edition="labengine-radix", block_size=4, hash_block_size=2)


def test_parts_with_and_without_a_tree_are_not_mixed() -> None:
    class Pool(BlockPool):
        pass

    class TreePool(RadixBlockPool):
        pass

    with pytest.raises(ConfigError, match=r"block_pool must be a subclass of RadixBlockPool.*Pool is missing"):
        Lab("simulated", edition="labengine-radix", parts=Parts(Pool))
    with pytest.raises(ConfigError, match="TreePool needs a prefix tree: use it with edition 'labengine-radix'"):
        Lab("simulated", parts=Parts(TreePool))
    for part in (SGLANG.scheduler, WorstCaseScheduler, TreeLookup):
        with pytest.raises(ConfigError, match=f"{part.__name__} needs a prefix tree"):
            Lab("simulated", parts=Parts(part))
    Lab("simulated", edition="labengine-radix", parts=Parts(TreePool))


@pytest.mark.parametrize("num_seeds", [12, pytest.param(600, marks=pytest.mark.sweep)])
def test_it_keeps_what_the_map_of_edition_labengine_keeps_or_more(num_seeds: int) -> None:
    """Both evict the blocks used longest ago, the end of a prefix first. Requests of these workloads answer apart.

    The tree keeps more where a prompt's last block is computed although it is cached: the map keeps the old copy too.
    """
    num_equal = 0
    for seed in range(num_seeds):
        workload = random_workload(seed)
        workload = replace(workload, alphabet=50_021, streams=len(workload.requests))
        if seed % 2:
            workload = replace(workload, num_blocks=workload.num_blocks * workload.block_size, block_size=1)
        by_map, by_tree = (scheduled_by(edition, workload) for edition in ("labengine", "labengine-radix"))
        num_equal += by_map == by_tree
        assert sum(e.num_tokens for e in by_tree) <= sum(e.num_tokens for e in by_map), f"seed {seed}"
    assert num_equal >= 0.98 * num_seeds


def scheduled_by(edition: str, workload: Workload) -> list[RequestScheduled]:
    hooks = Hooks(strict=True)
    events: list[RequestScheduled] = []
    hooks.subscribe(events.append, RequestScheduled)
    Drive(workload, edition, hooks, checks_reads=False).run()
    return events
