"""The memory that checks each read finds out a core that decides wrongly: else its silence would mean nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from check.mutations import GroupAfterGroup, TrustingTier
from driving import Drive, as_parts
from fake_tier import FakeTier
from grounds import HYBRID, TIERED, Ground
from labengine.config import GroupSpec
from labengine.core.block import Block
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import LateMergeComparingPrefixes
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.step_plan import SlotRun
from paged_memory import CorruptRead, StrayWrite
from workloads import Arrival, Workload


class DropsOneTokenEarly(SlidingWindowGroup):
    """As if the window did not count the token itself."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return super().num_skipped_tokens(num_computed_tokens + 1)


class FreesWithoutRepointing(FullAttentionGroup):
    """Late merge that leaves the table at the freed copy (mini-sglang PR 142)."""

    def merge(self, request: Request, index: int, block_id: int, into_block_id: int) -> None:
        super().merge(request, index, block_id, into_block_id)
        request.block_tables[self.index][index] = block_id


class MergesIntoFreeBlocks(LateMergeComparingPrefixes):
    """Without the alive check: the block is in the queue, and about to be allocated to another request."""

    def is_alive(self, other: Block) -> bool:
        return True


class WritesToTheLastBlock(KVCacheManager):
    """The slot of nano-vLLM PR 71: one position too far."""

    def slot_runs(self, request: Request, start: int, end: int, group: KVCacheGroup) -> tuple[SlotRun, ...]:
        runs = super().slot_runs(request, start, end, group)
        if end - start > 1 or not request.num_generated_tokens:
            return runs
        ((block_id, offset, length),) = runs
        return ((block_id, (offset + 1) % group.block_size, length),)


WRONG = {
    "a window that lets go too early": Parts(sliding_window_group=DropsOneTokenEarly),
    "a merge that frees without repointing": Parts(full_attention_group=FreesWithoutRepointing),
    "a merge into a free block": Parts(merge_policy=MergesIntoFreeBlocks),
    "a slot that is one too far": Parts(kv_cache_manager=WritesToTheLastBlock),
}


def is_found_out(drive: Drive) -> bool:
    """Whether it ends with a read of another's KV, or a write where others read."""
    try:
        drive.run()
    except (CorruptRead, StrayWrite):
        return True
    except Exception:  # the core's own rules may notice first: then this workload shows nothing
        return False
    return False


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_decision_is_found_out(name: str) -> None:
    parts = WRONG[name].overriding(as_parts("labengine"))
    assert any(is_found_out(Ground("labengine", True).drive(seed, parts=parts)) for seed in range(80))


@pytest.mark.parametrize("ground", [*HYBRID, *TIERED], ids=str)
def test_the_right_ones_are_not(ground: Ground) -> None:
    num_reads = 0
    for seed in range(20):
        drive = ground.drive(seed)
        drive.run()
        num_reads += drive.runner.num_reads
    assert num_reads > 5_000


def two_phase_drive(seed: int, parts: Parts) -> Drive:
    """A prompt and a long-lived neighbour fill the pool; the prompt goes, and the next hits it: the tier has more."""
    rng = Random(seed)
    size, num_windows, prefix = rng.choice((4, 6)), rng.choice((1, 2)), rng.randint(4, 8)
    window, external = rng.randint(3, prefix), rng.randint(1, 2)
    first = tuple(range(100, 100 + prefix * size))
    second = (*first, *range(200, 200 + external * size), 0)
    neighbour = tuple(range(500, 500 + (external + 1) * size - 3))
    workload = Workload(
        num_blocks=(prefix + external + 1) * (1 + num_windows),
        block_size=size,
        max_num_seqs=4,
        max_num_batched_tokens=1000,
        requests=(Arrival(0, neighbour, 4), Arrival(0, first, 1), Arrival(1, second, 1)),
        alphabet=50021,
        streams=2,
        groups=(GroupSpec(size), *[GroupSpec(size, "sliding_window", window * size)] * num_windows),
    )
    tier = TrustingTier()
    Drive(replace(workload, requests=workload.requests[2:]), "labengine", connector=tier).run()
    del tier.blocks[next(key for key in tier.blocks if key[0] == 0)]  # the first prompt computes, and does not load
    return Drive(workload, parts, connector=tier)


def test_groups_that_allocate_one_after_the_other_are_found_out() -> None:
    parts = Parts(kv_cache_manager=GroupAfterGroup).overriding(as_parts("labengine"))
    assert sum(is_found_out(two_phase_drive(seed, parts)) for seed in range(60)) > 10


def test_in_two_phases_they_are_not() -> None:
    num_loads = 0
    for seed in range(60):
        drive = two_phase_drive(seed, as_parts("labengine"))
        drive.run()
        assert isinstance(drive.connector, FakeTier)
        num_loads += drive.connector.met["load"]
    assert num_loads == 60
