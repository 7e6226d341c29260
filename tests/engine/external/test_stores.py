"""What holds for every store, whatever it keeps its blocks in."""

from __future__ import annotations

import pytest
import torch

from engine.external.pools import FINGERPRINT, SimulatedPool, TensorPool, chain, held, saved, transfer
from labengine.config import ConfigError
from labengine.core.connector import LoadError
from labengine.engine.external import KVStore


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("group", [0, 1])
def test_every_bit_comes_back(store: KVStore, dtype: torch.dtype, group: int) -> None:
    pool = TensorPool(dtype=dtype)
    saves = chain(3, 4, 5, group=group)
    pool.fill(saves)
    before = [pool.bits(block) for block in saves]
    assert store.save_kv(saves, pool) == tuple(saves)
    loads = [transfer(name, block_id=name + 10, group=group) for name in (3, 4, 5)]
    store.start_load_kv(loads, pool)
    assert [pool.bits(block) for block in loads] == before


def test_what_was_saved_does_not_change_with_the_pool(store: KVStore) -> None:
    pool = saved(store, [3])
    before = pool.bits(transfer(3))
    pool.fill(chain(3), seed=99)
    store.start_load_kv([transfer(3, block_id=9)], pool)
    assert pool.bits(transfer(9)) == before != pool.bits(transfer(3))


def test_equal_hashes_in_two_groups_are_two_entries(store: KVStore) -> None:
    pool = TensorPool()
    pool.fill(chain(3))
    store.save_kv(chain(3), pool)
    assert held(store, [3], group=0) == [3]
    assert held(store, [3], group=1) == []
    assert store.save_kv(chain(3, group=1), pool) == tuple(chain(3, group=1))


def test_an_entry_is_written_once(store: KVStore) -> None:
    pool = saved(store, [3])
    reads = pool.num_reads
    assert store.save_kv(chain(3), pool) == ()
    assert pool.num_reads == reads


def test_one_missing_block_keeps_all_others_out_of_the_pool(store: KVStore) -> None:
    pool = saved(store, [1, 2, 3])
    store.forget(chain(2))
    pool.written.clear()
    with pytest.raises(LoadError, match=r"1 of 3 blocks .*block 00000002") as caught:
        store.start_load_kv(chain(1, 2, 3), pool)
    assert caught.value.failed == (transfer(2),)
    assert pool.written == []
    store.start_load_kv(chain(1, 3), pool)
    assert pool.written == [(0, 1), (0, 3)]


def test_a_simulated_block_is_its_key_alone(store: KVStore) -> None:
    pool = SimulatedPool()
    assert store.save_kv(chain(1, 2), pool) == tuple(chain(1, 2))
    store.start_load_kv([transfer(1, block_id=8)], pool)
    assert pool.written == [(0, 8, None)]


def test_a_simulated_block_does_not_go_into_real_memory(store: KVStore) -> None:
    store.save_kv(chain(1), SimulatedPool())
    pool = TensorPool()
    with pytest.raises(LoadError, match="without KV"):
        store.start_load_kv(chain(1), pool)
    assert pool.written == [] and held(store, [1]) == []


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (TensorPool(block_size=8), r"layers.0.keys float32\[4, 2, 8\].* float32\[8, 2, 8\]"),
        (TensorPool(dtype=torch.float16), r"layers.0.keys float32\[4, 2, 8\].* float16\[4, 2, 8\]"),
    ],
)
def test_a_block_of_another_shape_or_dtype_is_refused(store: KVStore, pool: TensorPool, message: str) -> None:
    saved(store, [1])
    with pytest.raises(LoadError, match=message):
        store.start_load_kv(chain(1), pool)
    assert pool.written == []


def test_the_pool_is_asked_for_its_layout_once_a_group(store: KVStore) -> None:
    pool = saved(store, [1, 2, 3])
    reads = pool.num_reads
    for _ in range(3):
        store.start_load_kv(chain(1, 2, 3), pool)
    assert pool.num_reads == reads + 1


def test_a_store_serves_one_model_until_it_is_closed(store: KVStore) -> None:
    store.bind(FINGERPRINT)
    with pytest.raises(ConfigError, match="a separate store"):
        store.bind("gemma")
    store.close()
    store.close()
    store.bind("gemma")
    assert held(store, range(10)) == []


def test_a_block_loaded_into_twice_is_reported_and_changes_nothing(store: KVStore) -> None:
    first, second = transfer(1, block_id=5), transfer(2, block_id=5, group=1)
    with pytest.raises(AssertionError, match=r"two loads write to block 5: request 0 \(group 0, entry 1\), request 0"):
        store.update_state_after_alloc(None, [first, second])  # type: ignore[arg-type]
    store.update_state_after_alloc(None, [first])  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="block 5: "):
        store.update_state_after_alloc(None, [second])  # type: ignore[arg-type]


def test_a_block_may_be_loaded_into_again_once_its_load_has_finished(store: KVStore) -> None:
    pool = saved(store, [1])
    for _ in range(2):
        store.update_state_after_alloc(None, chain(1))  # type: ignore[arg-type]
        store.start_load_kv(chain(1), pool)
    store.update_state_after_alloc(None, chain(2))  # type: ignore[arg-type]
    with pytest.raises(LoadError):
        store.start_load_kv(chain(2), pool)
    store.update_state_after_alloc(None, chain(2))  # type: ignore[arg-type]
    store.cancel(0)
    store.update_state_after_alloc(None, chain(2))  # type: ignore[arg-type]
