"""The block pool: taking, touching, releasing and forgetting blocks, each with its inverse."""

from __future__ import annotations

from random import Random

import pytest

from labengine.core.block_pool import BlockPool
from labengine.core.editions import NanoBlockPool
from labengine.core.journal import Journal
from labengine.events import BlockEvicted
from labengine.hooks import Hooks

KEY, OTHER_KEY = (0, b"one"), (0, b"two")


def make_pool(num_blocks: int = 4, kind: type[BlockPool] = BlockPool) -> BlockPool:
    return kind(num_blocks, Hooks(strict=True), Journal())


def cache(pool: BlockPool, block_id: int, key: tuple[int, bytes] = KEY) -> None:
    pool.register(block_id, key, (7, 8), b"parent", (block_id,))


def state(pool: BlockPool) -> object:
    blocks = [(b.ref_count, b.keys, b.token_ids, b.parent_hash) for b in pool.blocks]
    return blocks, list(pool.free_queue), dict(pool.prefix_map.items())


def test_taken_blocks_come_off_the_head_with_one_reference() -> None:
    pool = make_pool()
    assert pool.take(2) == [0, 1]
    assert [b.ref_count for b in pool.blocks] == [1, 1, 0, 0]
    assert pool.num_free == 2


def test_unhashed_blocks_are_freed_to_the_head_and_cached_ones_to_the_tail() -> None:
    pool = make_pool()
    pool.take(2)
    cache(pool, 0)
    assert pool.release(0) == (0, "tail")
    assert pool.release(1) == (0, "head")
    assert list(pool.free_queue) == [1, 2, 3, 0]


def test_nano_vllm_frees_everything_to_the_tail() -> None:
    pool = make_pool(kind=NanoBlockPool)
    pool.take(2)
    cache(pool, 0)
    assert (pool.release(0), pool.release(1)) == ((0, "tail"), (0, "tail"))
    assert list(pool.free_queue) == [2, 3, 0, 1]


def test_touching_counts_and_takes_a_free_block_out_of_the_queue() -> None:
    pool = make_pool()
    assert (pool.touch(2), pool.touch(2)) == (1, 2)
    assert list(pool.free_queue) == [0, 1, 3]
    assert pool.release(2) == (1, None)
    assert 2 not in pool.free_queue


def test_releasing_a_free_block_is_refused() -> None:
    pool = make_pool()
    with pytest.raises(RuntimeError, match="block 3 is freed twice"):
        pool.release(3)


def test_a_free_cached_block_stays_known_until_it_is_taken() -> None:
    pool = make_pool(1)
    evicted: list[BlockEvicted] = []
    pool._hooks.subscribe(evicted.append, BlockEvicted)
    pool.take(1)
    cache(pool, 0)
    pool.release(0)
    assert pool.prefix_map.get(KEY) == (0,)
    pool.take(1)
    assert pool.prefix_map.get(KEY) == ()
    assert (pool.blocks[0].keys, pool.blocks[0].token_ids) == ((), ())
    assert evicted == [BlockEvicted(0)]


def test_evicting_one_of_two_blocks_leaves_the_other_in_the_map() -> None:
    pool = make_pool()
    pool.take(2)
    pool.register(0, KEY, (1,), b"", (0,))
    pool.register(1, KEY, (1,), b"", (0, 1))
    pool.evict(pool.blocks[0])
    assert pool.prefix_map.get(KEY) == (1,)


def test_an_overwritten_block_does_not_take_the_new_entry_with_it() -> None:
    pool = make_pool()
    pool.take(2)
    cache(pool, 0)
    cache(pool, 1)
    pool.evict(pool.blocks[0])
    assert pool.prefix_map.get(KEY) == (1,)


def test_a_block_known_by_two_hashes_forgets_both() -> None:
    pool = make_pool()
    pool.take(1)
    cache(pool, 0)
    cache(pool, 0, OTHER_KEY)
    pool.evict_cached([0, 1])
    assert not dict(pool.prefix_map.items())


@pytest.mark.parametrize("kind", [BlockPool, NanoBlockPool])
def test_random_operations_are_taken_back_exactly(kind: type[BlockPool]) -> None:
    rng, pool = Random(1), make_pool(6, kind)
    for _ in range(100):
        before = state(pool)
        pool._journal.open()
        for _ in range(rng.randint(1, 8)):
            operate(rng, pool)
        if rng.random() < 0.7:
            pool._journal.rollback()
            assert state(pool) == before


def operate(rng: Random, pool: BlockPool) -> None:
    used = [b.block_id for b in pool.blocks if b.ref_count]
    kind = rng.choice(("take", "touch", "release", "release", "register", "evict"))
    if kind == "take" and pool.num_free:
        pool.take(rng.randint(1, pool.num_free))
    elif kind == "touch":
        pool.touch(rng.randrange(6))
    elif kind == "release" and used:
        pool.release(rng.choice(used))
    elif kind == "register" and used:
        cache(pool, rng.choice(used), rng.choice((KEY, OTHER_KEY)))
    elif kind == "evict":
        pool.evict_cached([rng.randrange(6)])
