"""Six bits of hash collide all the time: how much an edition compares decides which requests read another's KV."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from driving import TOKEN_BUDGET_EDITIONS, Drive, as_parts
from hybrid_workloads import random_hybrid_workload
from labengine.config import GroupSpec
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from paged_memory import CorruptRead
from seeds import first
from workbench import Workbench, full, window
from workloads import Workload, random_workload


class SixBits(HashChain):
    """64 names for all blocks there are."""

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        return bytes([super().link(parent_hash, token_ids)[0] & 63])


def short(edition: str) -> Parts:
    """The edition with a hash of six bits."""
    return Parts(hash_chain=SixBits).overriding(as_parts(edition))


def runs_clean(workload: Workload, edition: str) -> bool:
    """Whether every read finds the request's own KV."""
    try:
        Drive(workload, short(edition)).run()
    except CorruptRead:
        return False
    return True


def test_the_default_shares_nothing_by_mistake() -> None:
    assert all(runs_clean(random_workload(seed), "labengine") for seed in first(30, 150))


def test_nor_does_it_on_hybrid_groups() -> None:
    assert all(runs_clean(random_hybrid_workload(seed), "labengine") for seed in first(30, 150))


@pytest.mark.parametrize("edition", ["nano-vllm", "nano-vllm+243"])
def test_comparing_a_blocks_own_tokens_is_not_enough(edition: str) -> None:
    """Equal tokens after different prefixes have different KV."""
    assert not all(runs_clean(random_workload(seed), edition) for seed in range(150))


@pytest.mark.parametrize("workload", [random_workload, random_hybrid_workload])
def test_trusting_the_hash_is_not_enough(workload: Callable[[int], Workload]) -> None:
    assert not all(runs_clean(workload(seed), "vllm") for seed in range(150))


class OneName(HashChain):
    """Everything has the same hash."""

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        return b"x"


@pytest.mark.parametrize("groups", [[full(2)], [full(2), window(2, 3)], [full(4), window(2, 2)]])
def test_even_under_one_hash_a_hit_is_the_prompts_own(groups: list[GroupSpec]) -> None:
    core = Workbench(groups, edition=Parts(hash_chain=OneName).overriding(as_parts("labengine")), num_blocks=40)
    core.cache([1, 2, 3, 4, 5, 6, 7, 8])
    assert core.hit([9, 9, 3, 4, 5, 6, 7, 8, 0]).num_tokens == 0
    assert core.hit([1, 2, 3, 4, 5, 6, 9, 9, 0]).num_tokens <= 6
    assert core.hit([1, 2, 3, 4, 5, 6, 7, 8], (("cache_salt", "x"),)).num_tokens == 0


@pytest.mark.parametrize("edition", TOKEN_BUDGET_EDITIONS)
def test_with_the_full_hash_nobody_reads_anothers_kv(edition: str) -> None:
    """What the tests above see comes from the short hash alone."""
    for seed in range(30):
        Drive(random_hybrid_workload(seed), edition).run()
