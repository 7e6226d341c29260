"""Stores that fail on purpose: they fail as they are set to, and as often."""

from __future__ import annotations

import pytest

from engine.external.pools import SimulatedPool, TensorPool, chain, held, saved, transfer
from faulty_stores import FailsOnSave, Faulty, FlipsBits, Hangs, LoadsTooFew, RaisesOnLoad
from labengine.core.connector import LoadError
from labengine.engine.external import HostStore, KVStore

ALL = [LoadsTooFew, FailsOnSave, FlipsBits, Hangs, RaisesOnLoad]


@pytest.mark.parametrize("kind", ALL)
def test_without_faults_left_it_is_the_store_inside(kind: type[Faulty], store: KVStore) -> None:
    faulty = kind(store, times=0)
    pool = saved(faulty, [1, 2])
    before = pool.bits(transfer(1))
    faulty.start_load_kv([transfer(1, block_id=8)], pool)
    assert pool.bits(transfer(8)) == before
    assert faulty.describe() == f"{store.describe()}; {kind.fault}"
    faulty.forget(chain(1))
    assert (held(faulty, [1, 2]), faulty.num_faults) == ([2], 0)
    faulty.close()


def test_raising_names_all_blocks_and_writes_none() -> None:
    faulty = RaisesOnLoad(HostStore(), times=2)
    pool = saved(faulty, [1, 2])
    for _ in range(2):
        with pytest.raises(LoadError, match="fails on purpose") as caught:
            faulty.start_load_kv(chain(1, 2), pool)
        assert caught.value.failed == tuple(chain(1, 2))
    assert pool.written == []
    faulty.start_load_kv(chain(1, 2), pool)
    assert pool.written == [(0, 1), (0, 2)]


def test_raising_any_error() -> None:
    faulty = RaisesOnLoad(HostStore(), error=TimeoutError("no answer"))
    with pytest.raises(TimeoutError, match="no answer"):
        faulty.start_load_kv(chain(1), TensorPool())


def test_coming_back_short_writes_all_but_the_last_block() -> None:
    faulty = LoadsTooFew(HostStore(), times=1)
    pool = saved(faulty, [1, 2, 3])
    with pytest.raises(LoadError, match="2 of 3 blocks came") as caught:
        faulty.start_load_kv(chain(1, 2, 3), pool)
    assert caught.value.failed == (transfer(3),)
    assert pool.written == [(0, 1), (0, 2)]


def test_one_bit_of_every_tensor_is_flipped_and_the_store_keeps_the_right_ones() -> None:
    faulty = FlipsBits(HostStore(), times=1)
    pool = saved(faulty, [1])
    before = pool.bits(transfer(1))
    load = transfer(1, block_id=8)
    faulty.start_load_kv([load], pool)
    for (name, bits), (_, was) in zip(pool.bits(transfer(8)), before, strict=True):
        assert (bits[0], bits[1:]) == (was[0] ^ 1, was[1:]), name
    faulty.start_load_kv([load], pool)
    assert pool.bits(transfer(8)) == before


def test_a_simulated_model_has_no_bits_to_flip() -> None:
    faulty, pool = FlipsBits(HostStore()), SimulatedPool()
    faulty.save_kv(chain(1), pool)
    faulty.start_load_kv(chain(1), pool)
    assert pool.written == [(0, 1, None)]


def test_failing_saves_are_noted_where_the_stores_own_are() -> None:
    faulty = FailsOnSave(HostStore(max_bytes=1), times=1)
    assert faulty.save_kv(chain(1, 2), TensorPool()) == ()
    assert faulty.save_kv(chain(1), TensorPool()) == ()
    assert "the store fails on purpose" in faulty.failures[0]
    assert "max_bytes=1 is less than one block" in faulty.failures[1]


@pytest.mark.parametrize("kind", [RaisesOnLoad, LoadsTooFew])
def test_after_a_fault_the_blocks_may_be_loaded_into_again(kind: type[Faulty]) -> None:
    faulty = kind(HostStore(), times=1)
    pool = saved(faulty, [1])
    for _ in range(2):
        faulty.update_state_after_alloc(None, chain(1))  # type: ignore[arg-type]
        try:
            faulty.start_load_kv(chain(1), pool)
        except LoadError as error:
            assert error.failed == (transfer(1),)
    with pytest.raises(AssertionError, match="loaded into twice"):
        faulty.update_state_after_alloc(None, [transfer(1), transfer(2, block_id=1)])  # type: ignore[arg-type]
