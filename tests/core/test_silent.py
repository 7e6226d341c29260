"""Without listeners, the core registers and evicts many blocks at once: with the result of one by one."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from driving import Drive, difference
from grounds import ALL_GROUNDS, Ground, at_every_change
from labengine.core.block_pool import BlockPool
from labengine.core.editions import LABENGINE
from labengine.core.full_attention import FullAttentionGroup as Group
from labengine.core.parts import Parts
from labengine.record.hooks import Hooks


def heard() -> Hooks:
    hooks = Hooks(strict=True)
    hooks.subscribe(lambda event: None)
    return hooks


def contents(pool: BlockPool) -> list[Any]:
    """Of each block, all that the pool knows of its content."""
    found = []
    for block in pool.blocks:
        chain, prefix = [], block.prefix
        while prefix is not None:
            chain.append(prefix.token_ids)
            prefix = prefix.parent
        found.append((block.ref_count, block.keys, block.token_ids, chain))
    return found


def assert_equal(one: Drive, other: Drive) -> None:
    pools = one.engine.scheduler.manager.pool, other.engine.scheduler.manager.pool
    assert difference(one.engine.snapshot(), other.engine.snapshot()) is None
    assert contents(pools[0]) == contents(pools[1]) and pools[0].num_losses == pools[1].num_losses


@pytest.mark.parametrize("ground", at_every_change(ALL_GROUNDS), ids=str)
def test_a_run_is_the_same_whether_it_is_heard_or_not(ground: Ground) -> None:
    """Aborts, resets and steps that are rolled back among its operations."""
    for seed in ground.seeds(4):
        loud, silent = ground.drive(seed, heard()), ground.drive(seed)
        for one, other in zip(loud.operations(Random(seed)), silent.operations(Random(seed)), strict=True):
            assert one == other
            assert_equal(loud, silent)


@pytest.mark.parametrize("base, name", [(BlockPool, "evict"), (BlockPool, "register"), (Group, "register_block")])
def test_an_override_of_a_single_block_is_called_as_often_in_a_silent_run(base: type, name: str) -> None:
    called = Counter[bool]()
    for is_heard in (True, False):

        def method(self: Any, *asked: Any, is_heard: bool = is_heard) -> Any:
            called[is_heard] += 1
            return getattr(base, name)(self, *asked)

        parts = Parts(type("Mine", (base,), {name: method})).overriding(LABENGINE)
        Ground("labengine").drive(3, heard() if is_heard else None, parts=parts).run()
    assert called[True] == called[False] > 0
