"""What upstream nano-vLLM held after every step, recorded, is what labengine's editions of its name hold."""

from __future__ import annotations

import pytest

from differential import golden
from differential.comparison import first_difference, is_found_out, rows_of_labengine
from differential.nano_upstream import COMMIT, EDITIONS
from encounters import ENCOUNTERS, MERGES, workloads_meeting
from labengine.core.block import Block
from labengine.core.editions import EDITIONS as PARTS
from labengine.core.kv_cache_manager import Moment
from labengine.core.merge_policy import LateMerge, MergePolicy
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from seeds import one_in
from workloads import random_workload


@pytest.mark.parametrize("edition", EDITIONS)
def test_header_names_commit_and_command(edition: str) -> None:
    header = golden.read_header(edition)
    assert (header["commit"], header["edition"]) == (COMMIT, edition)
    assert header["command"].endswith("python tests/record_golden.py")


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_step_of_the_recorded_workloads_is_equal(edition: str) -> None:
    recorded = list(golden.read(edition))
    assert len(recorded) == 200
    for number, (workload, rows) in enumerate(one_in(3, recorded)):
        difference = first_difference(rows, rows_of_labengine(workload, edition))
        assert difference is None, f"recorded workload {number}: {difference}\n{workload}"


def test_the_generator_still_makes_what_was_recorded() -> None:
    for edition in EDITIONS:
        assert [workload for workload, _ in golden.read(edition)] == [random_workload(seed) for seed in range(200)]


@pytest.mark.parametrize("edition", [*EDITIONS, "labengine"])
def test_the_workloads_cover_what_they_are_for(edition: str) -> None:
    """Each encounter in at least a tenth of those that are played."""
    workloads = one_in(3, [random_workload(seed) for seed in range(200)])
    met = workloads_meeting(workloads, edition)
    wanted = ENCOUNTERS if edition == "nano-vllm" else ENCOUNTERS + MERGES
    rare = {name: met[name] for name in wanted if met[name] < len(workloads) // 10}
    assert not rare


class FreesToTheHead(NanoBlockPool):
    def reused_first(self, block_ids: list[int]) -> list[int]:
        return block_ids


class AdmitsChunkByChunk(NanoKVCacheManager):
    def admit(self, request: Request, hit: Hit, num_tokens: int, *args: int, **kwargs: int) -> bool:
        return super().admit(request, hit, min(num_tokens, hit.num_tokens + 1), *args, **kwargs)


class RegistersAtAllocation(NanoKVCacheManager):
    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        return num_tokens


class MergesIntoFreeBlocks(LateMerge):
    def is_alive(self, other: Block) -> bool:
        return True


class KeepsTheFirstHasher(MergePolicy):
    def mapped_after(self, mapped: tuple[int, ...], block_id: int) -> tuple[int, ...]:
        return mapped or (block_id,)


class RequeuesAtTheBack(PrefillFirstScheduler):
    def requeue(self, request: Request) -> None:
        self.waiting.add_request(request)


MUTANTS = {
    "frees to the head": Parts(block_pool=FreesToTheHead),
    "admits chunk by chunk": Parts(kv_cache_manager=AdmitsChunkByChunk),
    "registers at allocation": Parts(kv_cache_manager=RegistersAtAllocation),
    "merges into free blocks": Parts(merge_policy=MergesIntoFreeBlocks),
    "keeps the first hasher": Parts(merge_policy=KeepsTheFirstHasher),
    "requeues victims at the back": Parts(scheduler=RequeuesAtTheBack),
    "one token budget": Parts(scheduler=TokenBudgetScheduler),
}


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("edition", EDITIONS)
def test_a_core_that_decides_otherwise_is_found_out(edition: str, mutant: str) -> None:
    parts = MUTANTS[mutant].overriding(PARTS[edition])
    assert is_found_out(
        golden.read(edition), lambda workload, rows: first_difference(rows, rows_of_labengine(workload, parts))
    )
