"""Decisions that are taken in one place: an override of it is seen by all that depend on it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from driving import as_parts
from labengine import Lab, Parts
from labengine import events as ev
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.token_budget import TokenBudgetScheduler
from workbench import Workbench, full, window


def reversed_hashes(hashes: Sequence[bytes]) -> list[bytes]:
    return [block_hash[::-1] for block_hash in hashes]


class NamesBlocksBackwards(FullAttentionGroup):
    """Another name for each block, everywhere."""

    def block_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        return reversed_hashes(super().block_hashes(request, first, end))


class NamesWindowsBackwards(SlidingWindowGroup):
    """The same in a window."""

    def block_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        return reversed_hashes(super().block_hashes(request, first, end))


BACKWARDS = Parts(full_attention_group=NamesBlocksBackwards, sliding_window_group=NamesWindowsBackwards)


@pytest.mark.parametrize("groups", [[full(4)], [full(4), window(4, 8)], [full(8), window(4, 8)]])
@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_whoever_names_blocks_otherwise_registers_and_finds_them_by_the_same_names(
    groups: list[object], edition: str
) -> None:
    events = []
    for parts in (Parts(), BACKWARDS):
        with Lab("simulated", num_blocks=24, groups=groups, edition=edition, parts=parts, external="host") as lab:
            for _ in range(2):
                lab.generate([range(17)], max_tokens=1)
            lab.reset_prefix_cache()
            lab.generate([range(17)], max_tokens=1)
            assert not lab.check() and lab.timeline is not None
            events.append(lab.timeline.events())
    usual, backwards = (
        [(e.block_id, e.block_hash) for e in found if isinstance(e, ev.BlockCached) and e.is_full] for found in events
    )
    assert backwards == [(block_id, block_hash[::-1]) for block_id, block_hash in usual] and usual
    hits = [[e.num_tokens for e in found if isinstance(e, (ev.PrefixHit, ev.ExternalHit))] for found in events]
    assert hits[0] == hits[1] and max(hits[0]) == 16


def test_the_room_of_an_admission_is_counted_once() -> None:
    class HasNoRoom(KVCacheManager):
        def has_room(self, hit: Hit, num_external: int, num_blocks: Sequence[int], num_spare: int) -> bool:
            return False

    bench = Workbench([full(4)], 8, Parts(kv_cache_manager=HasNoRoom).overriding(as_parts("labengine")))
    request = bench.request(range(4))
    hit = bench.manager.find_prefix(request)
    assert not bench.manager.can_admit(request, hit) and not bench.manager.admit(request, hit, 4)


class OldestGivesWay(TokenBudgetScheduler):
    """Preempts the oldest request, of which the step has taken two tokens already."""

    def num_plannable(self, request: Request) -> int:
        if request.request_id:
            return super().num_plannable(request)
        return 2 if self.requests[1].num_computed_tokens == 4 else 1

    def choose_victim(self, request: Request) -> Request:
        return self.running[0]


def test_a_victim_that_leaves_the_batch_gives_its_tokens_back_to_the_budget() -> None:
    """Of a budget of 3, A takes 2; B needs A's block, and then C gets a token too."""
    settings = {"num_blocks": 4, "block_size": 4, "max_num_batched_tokens": 3, "long_prefill_token_threshold": 2}
    with Lab("simulated", parts=Parts(scheduler=OldestGivesWay), **settings) as lab:
        lab.add(token_ids=range(12), max_tokens=1)
        lab.add(token_ids=[50, 51, 52], max_tokens=6)
        lab.add(token_ids=[60], max_tokens=6)
        *before, report = [lab.step() for _ in range(4)]
        assert [one.scheduled for one in before] == [{0: 2, 1: 1}, {0: 1, 1: 2}, {0: 1, 1: 1, 2: 1}]
        assert (report.preempted, report.scheduled) == ((0,), {1: 1, 2: 1}) and not lab.check()
