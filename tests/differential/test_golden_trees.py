"""What SGLang and mini-sglang held after every iteration, recorded, is what the editions of their names hold."""

from __future__ import annotations

import pytest

from differential import golden
from differential.comparison import first_difference, is_found_out
from differential.tree_encounters import Compared, run_of
from differential.tree_process import EDITIONS, UPSTREAM
from differential.tree_workloads import WORKLOADS
from driving import EDITION_FAULTS
from labengine.check.watch import Watch
from labengine.core.editions import EDITIONS as PARTS
from labengine.core.mini_sglang.full_attention import UnmappedMergeGroup
from labengine.core.parts import Parts
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.matching import MatchedGroup
from labengine.core.radix.node import Node
from labengine.core.radix.whole_leaf_tree import WholeLeafTree
from labengine.core.request import Request
from labengine.core.sglang.full_attention import SglangGroup
from labengine.core.sglang.kv_cache_manager import SglangKVCacheManager
from labengine.core.sglang.prefix_tree import SglangPrefixTree
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.record.hooks import Hooks
from seeds import EVERY_SEED

STEP = 1 if EVERY_SEED else 5
"""Odd: every other workload is of another kind."""


@pytest.mark.parametrize("edition", EDITIONS)
def test_header_names_version_and_command(edition: str) -> None:
    header = golden.read_header(edition)
    assert header["edition"] == edition
    assert header["upstream"].startswith(UPSTREAM[edition][2])
    assert header["command"].endswith("python tests/record_trees.py")


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_step_of_the_recorded_workloads_is_equal(edition: str) -> None:
    compared, runs = Compared(edition), list(golden.read_plain(edition, STEP))
    for number, (workload, rows) in enumerate(runs):
        difference = compared.difference(workload, rows)
        assert difference is None, f"recorded workload {STEP * number}: {difference}\n{workload}"
    wanted = {"eviction", "split", "page above 1", "hit", "chunk", "abort"}
    wanted |= {"retraction", "duplicate"} if edition == "sglang" else set()
    rare = {name: compared.met[name] for name in wanted if compared.met[name] < len(runs) // 10}
    assert not rare


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_generator_still_makes_what_was_recorded(edition: str) -> None:
    for number, (workload, _) in enumerate(golden.read_plain(edition, 20)):
        assert workload == WORKLOADS[edition](20 * number)


@pytest.mark.parametrize("edition", EDITIONS)
def test_only_the_named_rules_are_broken(edition: str) -> None:
    broken: set[str] = set()
    for workload, _ in golden.read_plain(edition, 5 * STEP):
        hooks = Hooks(strict=True)
        watch, run = Watch(hooks), run_of(workload, edition, hooks=hooks)
        run.engine.runner = watch.wrap(run.engine.runner)
        watch.follow(run.engine)
        list(run.rows())
        broken |= {violation.rule for violation in watch.check(run.engine.snapshot())}
    named = EDITION_FAULTS.get(edition, {}).keys()
    assert broken <= named
    assert bool(broken) == bool(named)


class FirstInFirstOut(SglangKVCacheManager):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.pool.freed_go_to = "tail"  # type: ignore[attr-defined]


class FreesAtOnce(SglangGroup):
    def free_in_group(self, free: object) -> None:
        free()  # type: ignore[operator]


class InsertsOnce(SglangGroup):
    def insert(self, request: Request, num_blocks: int) -> Node:
        return RadixGroup.insert(self, request, num_blocks)


class SplitsLikeMiniSglang(SglangPrefixTree):
    def split(self, node: Node, num_blocks: int) -> Node:
        return WholeLeafTree.split(self, node, num_blocks)


class EvictsNothingAhead(SglangScheduler):
    def make_room_for(self, chosen: object) -> None:
        pass


class QueuesRetractedFirst(SglangScheduler):
    def requeue(self, request: Request) -> None:
        self._queue_first(request)


class NeverFull(SglangScheduler):
    def _note_full(self) -> None:
        pass


MUTANTS = {
    "sglang": (
        *(FirstInFirstOut, FreesAtOnce, InsertsOnce, SplitsLikeMiniSglang, EvictsNothingAhead, QueuesRetractedFirst),
        NeverFull,
    ),
    "mini-sglang": (MatchedGroup,),
    "mini-sglang+142": (UnmappedMergeGroup,),
}


@pytest.mark.parametrize(
    ("edition", "mutant"), [pytest.param(e, m, id=f"{e} {m.__name__}") for e, of in MUTANTS.items() for m in of]
)
def test_a_core_that_decides_otherwise_is_found_out(edition: str, mutant: type) -> None:
    parts = Parts(mutant).overriding(PARTS[edition])
    assert is_found_out(
        golden.read_plain(edition),
        lambda workload, rows: first_difference(rows, list(run_of(workload, edition, parts).rows())),
    )
