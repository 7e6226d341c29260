"""Cases from public reports: tenants, lost work, errors of a reference, and smaller workloads."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from finder.test_find import ONE_SCOPE, TINY, found
from finder.wrong_parts import RaisesOnTouch
from labengine.core.block_pool import BlockPool
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.finder.find import GRAVE, find
from labengine.finder.judgement import Case, Judgement
from labengine.finder.operations import Add, TakeStep
from labengine.finder.scopes import small_scopes
from labengine.finder.shrinking import Tries, shrunk
from labengine.finder.suspects import suspects_of
from reported import ForgetsAdapter

TENANTS = tuple(scope for scope in small_scopes() if scope.name == "different tenants")


def losing(name: str) -> type[HashChain]:
    """A hash chain without one kind of key."""

    class Loses(HashChain):
        """Leaves out one kind of key."""

        def root(self, extra_keys: ExtraKeys) -> bytes:
            return super().root(tuple(pair for pair in extra_keys if pair[0] != name))

    return Loses


@pytest.mark.parametrize("name", ["lora", "mm_hash"])
def test_a_key_that_is_lost_names_two_contents_before_anybody_hits_one(name: str) -> None:
    one = found(losing(name), against="vllm", scopes=TENANTS, kinds=GRAVE, max_workloads=0)
    assert (one.kind, one.rule) == ("rule", "named") and one.is_shortest
    assert "names two contents" in one.message and "(Loses.root)" in one.message


def test_a_salt_that_is_lost_is_a_breach_between_tenants() -> None:
    """No KV depends on it, so nothing is wrong before a hit."""
    one = found(losing("cache_salt"), against="vllm", scopes=TENANTS, kinds=GRAVE, max_workloads=0)
    assert (one.kind, one.rule) == ("rule", "scope") and one.is_shortest
    assert one.message.startswith("a breach between tenants: request 1 (cache_salt=s) finds blocks of request 0")


def test_tokenspeed_976_is_found_in_the_small_scopes() -> None:
    """A chain that begins at decode, after a prompt shorter than a block, begins without the adapter."""
    one = found(ForgetsAdapter, against="vllm", scopes=TENANTS, kinds=GRAVE, max_workloads=0)
    assert len(one.operations) == 4 and "(ForgetsAdapter.extend_hashes)" in one.message


def test_equal_tenants_are_no_breach() -> None:
    one = found(RaisesOnTouch, scopes=ONE_SCOPE, kinds=GRAVE, max_workloads=0)
    assert "breach" not in one.message


class OneTokenAStep(TokenBudgetScheduler):
    """Computes at most one token of a request in a step."""

    def longest_chunk(self) -> int:
        return 1


def test_lost_steps_are_worse() -> None:
    one = found(OneTokenAStep, kinds=("worse",), scopes=ONE_SCOPE, max_workloads=40)
    assert one.message == "it takes 2 steps in total instead of 1 with labengine"
    assert "assert cost(lab).num_steps <= 1" in one.to_test()


class RaisesMore(RaisesOnTouch):
    """Raises where its base does, and nowhere else."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        return super().reused_first(block_ids)


def test_what_the_reference_does_wrong_too_is_discounted() -> None:
    settings: dict[str, Any] = {"scopes": TINY, "kinds": GRAVE, "max_workloads": 0, "workers": 0}
    settings |= {"seconds": 600, "show_progress": False}
    assert find(RaisesMore, **settings)
    assert not find(Parts(block_pool=RaisesMore), against=Parts(block_pool=RaisesOnTouch), **settings)
    assert find(Parts(block_pool=RaisesMore), against=Parts(block_pool=BlockPool), **settings), "it is an edition's own"


def test_the_requests_of_a_shrunk_case_are_not_left_out_of_its_scope() -> None:
    """The edition vllm keeps a block back, and could not hold this one: any length would be called the fewest."""
    tight = replace(ONE_SCOPE[0].config, num_blocks=3)
    assert replace(ONE_SCOPE[0], config=tight, only=(Add((1,) * 6, 1),)).adds


def test_requests_that_are_alike_lose_their_keys_together() -> None:
    """Without their keys, neither would hit the other's blocks."""
    judgement = Judgement(suspects_of(RaisesOnTouch, "labengine"), GRAVE)
    one = Add((0, 4687, 9374), 1, None, (("lora", "s"),))
    workload = (one, TakeStep(), replace(one, token_ids=(0, 4687, 5)), TakeStep())
    finding, case = judgement.of(Case(ONE_SCOPE[0], workload)) or pytest.fail("it raises at the hit")
    smaller, _ = shrunk(case, finding, judgement.of, Tries(inf))
    assert [add.keys for add in smaller.workload if isinstance(add, Add)] == [(), ()]
