"""The block pool: taking, touching, releasing and forgetting blocks, each with its inverse."""

from __future__ import annotations

from random import Random

import pytest

from labengine.core.block import NO_KEYS, Prefix
from labengine.core.block_pool import BlockPool
from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.core.nano_vllm.block_pool import NanoBlockPool
from labengine.events import BlockEvicted
from labengine.record.hooks import Hooks
from random_cases import for_random

KEY, OTHER_KEY, KNOWN = (0, b"one"), (0, b"two"), (0, b"three")
PREFIX, LONGER = Prefix(NO_KEYS, (7, 8)), Prefix(NO_KEYS, (7, 8, 9, 9))


def make_pool(num_blocks: int = 4, kind: type[BlockPool] = BlockPool) -> BlockPool:
    return kind(num_blocks, FreeQueue(num_blocks), Hooks(strict=True), Journal())


def cache(pool: BlockPool, block_id: int, key: tuple[int, bytes] = KEY) -> None:
    pool.register(pool.blocks[block_id], key, (7, 8), PREFIX, (block_id,))


def state(pool: BlockPool) -> object:
    blocks = [(b.ref_count, b.keys, b.token_ids, b.prefix) for b in pool.blocks]
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
    assert pool.release([0, 1]) == ([1], [0])
    assert list(pool.free_queue) == [1, 2, 3, 0]


def test_blocks_of_one_release_keep_their_order_at_either_end() -> None:
    pool = make_pool(6)
    pool.take(5)
    cache(pool, 1)
    cache(pool, 3, OTHER_KEY)
    assert pool.release([4, 3, 2, 1, 0]) == ([4, 2, 0], [3, 1])
    assert list(pool.free_queue) == [4, 2, 0, 5, 3, 1]


def test_nano_vllm_frees_everything_to_the_tail() -> None:
    pool = make_pool(kind=NanoBlockPool)
    pool.take(2)
    cache(pool, 0)
    assert pool.release([0, 1]) == ([], [0, 1])
    assert list(pool.free_queue) == [2, 3, 0, 1]


def test_touching_counts_and_takes_a_free_block_out_of_the_queue() -> None:
    pool = make_pool()
    pool.touch([2])
    pool.touch([2])
    assert pool.blocks[2].ref_count == 2
    assert list(pool.free_queue) == [0, 1, 3]
    assert pool.release([2]) == ([], [])
    assert (pool.blocks[2].ref_count, 2 in pool.free_queue) == (1, False)


def test_releasing_a_free_block_is_refused() -> None:
    pool = make_pool()
    with pytest.raises(RuntimeError, match="block 3 is freed twice"):
        pool.release([3])


def test_a_release_with_a_free_block_in_it_changes_nothing() -> None:
    pool = make_pool()
    pool.take(2)
    before = state(pool)
    with pytest.raises(RuntimeError, match="block 3 is freed twice"):
        pool.release([0, 3, 1])
    assert state(pool) == before


def test_a_null_entry_is_no_block() -> None:
    pool = make_pool()
    before = state(pool)
    with pytest.raises(IndexError, match=r"block -1 cannot be touched: .* only pads tables"):
        pool.touch([0, -1])
    pool._journal.rollback()
    assert state(pool) == before


@pytest.mark.parametrize("block_id", [-2, 4, -4])
def test_ids_outside_the_pool_are_refused_with_words(block_id: int) -> None:
    pool = make_pool()
    pool.take(2)
    before = state(pool)
    text = f"block {block_id} cannot be {{}}: .* 0 to 3"
    with pytest.raises(IndexError, match=text.format("touched")):
        pool.touch([block_id])
    with pytest.raises(IndexError, match=text.format("freed")):
        pool.release([0, 1, block_id])
    with pytest.raises(IndexError, match=text.format("evicted")):
        pool.evict_cached([block_id], "distrusted")
    with pytest.raises(ValueError, match=f"block {block_id} is not in the free queue"):
        pool.free_queue.remove(block_id)
    assert block_id not in pool.free_queue
    assert state(pool) == before and pool.free_queue.fault() is None


def test_a_free_cached_block_stays_known_until_it_is_taken() -> None:
    pool = make_pool(1)
    evicted: list[BlockEvicted] = []
    pool._hooks.subscribe(evicted.append, BlockEvicted)
    pool.take(1)
    cache(pool, 0)
    pool.release([0])
    assert pool.prefix_map.get(KEY) == (0,)
    pool.take(1)
    assert KEY not in pool.prefix_map
    assert (pool.blocks[0].keys, pool.blocks[0].token_ids, pool.blocks[0].prefix) == ((), (), None)
    assert evicted == [BlockEvicted(0)]


@pytest.mark.parametrize(
    "cached, keys, is_registered",
    [(3, (KEY, OTHER_KEY), True), (3, (KEY, KEY), False), (3, (KEY, KNOWN), False), (0, (KEY, OTHER_KEY), False)],
)
def test_blocks_are_registered_at_once_only_if_they_and_their_keys_are_new(
    cached: int, keys: tuple[tuple[int, bytes], ...], is_registered: bool
) -> None:
    pool = make_pool()
    pool.take(4)
    cache(pool, cached, KNOWN)
    before = state(pool)
    pool._journal.commit()
    contents = [(7, 8), (9, 9)], [PREFIX, LONGER], [(0,), ()]
    assert pool.register_new(pool.blocks[:2], keys, *contents) is is_registered
    if is_registered:
        assert [(b.keys, b.token_ids, b.prefix) for b in pool.blocks[:2]] == [
            ((KEY,), (7, 8), PREFIX),
            ((OTHER_KEY,), (9, 9), LONGER),
        ]
        assert pool.prefix_map == {KNOWN: (3,), KEY: (0,)}
    pool._journal.rollback()
    assert state(pool) == before


def test_evicting_one_of_two_blocks_leaves_the_other_in_the_map() -> None:
    pool = make_pool()
    pool.take(2)
    pool.register(pool.blocks[0], KEY, (7, 8), PREFIX, (0,))
    pool.register(pool.blocks[1], KEY, (7, 8), PREFIX, (0, 1))
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
    pool.evict_cached([0, 1], "reset")
    assert not pool.prefix_map


def test_a_block_known_by_two_hashes_has_the_first() -> None:
    pool = make_pool()
    pool.take(1)
    cache(pool, 0)
    pool.register(pool.blocks[0], OTHER_KEY, (7, 8, 9, 9), LONGER, (0,))
    assert (pool.blocks[0].keys, pool.blocks[0].prefix) == ((KEY, OTHER_KEY), PREFIX)


class PadsWithBlockZero(BlockPool):
    null_block = 0


def test_a_null_block_of_the_pool_is_never_allocated() -> None:
    pool = make_pool(3, PadsWithBlockZero)
    assert (pool.num_usable, pool.num_free, list(pool.free_queue)) == (2, 2, [1, 2])
    assert pool.take(2) == [1, 2]
    assert (pool.num_free, pool.num_used) == (0, 2)
    with pytest.raises(IndexError):
        pool.take(1)


@pytest.mark.parametrize("kind", [BlockPool, NanoBlockPool, PadsWithBlockZero])
def test_random_operations_are_taken_back_exactly(kind: type[BlockPool]) -> None:
    for_random(lambda rng: _takes_back_exactly(rng, make_pool(6, kind), rng.randint(1, 10)), examples=30)
    _takes_back_exactly(Random(1), make_pool(6, kind), num_rounds=100)


def _takes_back_exactly(rng: Random, pool: BlockPool, num_rounds: int) -> None:
    for _ in range(num_rounds):
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
        pool.touch(rng.sample(range(1, 6), rng.randint(1, 3)))
    elif kind == "release" and used:
        pool.release(rng.sample(used, rng.randint(1, len(used))))
    elif kind == "register" and used:
        cache(pool, rng.choice(used), rng.choice((KEY, OTHER_KEY)))
    elif kind == "evict":
        pool.evict_cached([rng.randrange(6)], "reset")
