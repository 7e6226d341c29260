"""Loads that arrive a number of polls later."""

from __future__ import annotations

import pytest

from engine.external.pools import TensorPool, chain, held, saved, transfer
from faulty_stores import LoadsTooFew, RaisesOnLoad
from labengine.config import ConfigError
from labengine.core.connector import BlockKV, Connector
from labengine.engine.external import Delayed, HostStore, KVStore

NOTHING: tuple[set[int], set[int]] = (set(), set())


@pytest.mark.parametrize("steps", [1, 3])
def test_a_load_arrives_with_the_nth_poll(store: KVStore, steps: int) -> None:
    late = Delayed(store, steps)
    pool = saved(late, [1, 2])
    before = pool.bits(transfer(1))
    late.start_load_kv([transfer(1, block_id=8, request_id=5), transfer(2, block_id=9, request_id=5)], pool)
    for _ in range(steps - 1):
        assert late.get_finished(pool) == NOTHING
    assert pool.written == []
    assert late.get_finished(pool) == ({5}, set())
    assert (pool.written, pool.bits(transfer(8))) == ([(0, 8), (0, 9)], before)
    assert late.get_finished(pool) == NOTHING


def test_loads_of_one_call_are_reported_by_request_and_fail_alone() -> None:
    late = Delayed(HostStore())
    pool = saved(late, [1, 2, 3])
    late.inner.forget(chain(2))
    late.start_load_kv([transfer(1, request_id=1), transfer(2, request_id=2), transfer(3, request_id=1)], pool)
    assert late.get_finished(pool) == ({1}, {2})
    assert pool.written == [(0, 1), (0, 3)]
    [failure] = late.failures
    assert failure.startswith("request 2: 1 of 1 blocks ") and "block 000000020000 of group 0" in failure


def test_a_failed_load_forgets_what_could_not_be_had_and_no_more() -> None:
    late = Delayed(LoadsTooFew(HostStore(), times=1))
    pool = saved(late, [1, 2, 3])
    late.start_load_kv(chain(1, 2, 3), pool)
    assert late.get_finished(pool) == (set(), {0})
    assert (pool.written, held(late, range(9))) == ([], [1, 2])


def test_a_request_may_load_again_after_a_cancel_and_not_before() -> None:
    late = Delayed(HostStore(), steps=2)
    pool = saved(late, [1, 2])
    late.start_load_kv(chain(1), pool)
    with pytest.raises(RuntimeError, match=r"request 0 .*cancel\(0\)"):
        late.start_load_kv(chain(2), pool)
    late.cancel(0)
    late.start_load_kv(chain(2), pool)
    assert late.get_finished(pool) == NOTHING
    assert late.get_finished(pool) == ({0}, set())
    assert pool.written == [(0, 2)]


def test_what_is_evicted_while_it_is_on_its_way_arrives_all_the_same() -> None:
    late = Delayed(HostStore(max_blocks=2), steps=3)
    pool = saved(late, [1, 2])
    before = pool.bits(transfer(1))
    late.start_load_kv([transfer(1, block_id=8)], pool)
    saved(late, [3, 4], pool)
    assert held(late, [1]) == []
    for _ in range(3):
        late.get_finished(pool)
    assert pool.bits(transfer(8)) == before


def test_a_block_is_taken_until_its_load_has_finished() -> None:
    late = Delayed(HostStore(), steps=1)
    pool = saved(late, [1, 2])
    for end in (lambda: late.get_finished(pool), lambda: late.cancel(0)):
        late.update_state_after_alloc(None, chain(1))  # type: ignore[arg-type]
        late.start_load_kv(chain(1), pool)
        with pytest.raises(AssertionError, match=r"two loads write to block 1"):
            late.update_state_after_alloc(None, [transfer(2, block_id=1, request_id=4)])  # type: ignore[arg-type]
        end()
    late.update_state_after_alloc(None, [transfer(2, block_id=1, request_id=4)])  # type: ignore[arg-type]


def test_any_exception_is_a_failed_load_with_its_name() -> None:
    late = Delayed(RaisesOnLoad(HostStore(), error=ZeroDivisionError("in the store")))
    pool = saved(late, [1])
    late.start_load_kv(chain(1), pool)
    assert late.get_finished(pool) == (set(), {0})
    assert late.failures == ["request 0: ZeroDivisionError: in the store"]
    assert held(late, [1]) == []


class Silent(HostStore):
    """Does not load the last block, and reports no failure."""

    def start_load_kv(self, loads, kv):  # type: ignore[no-untyped-def]
        super().start_load_kv(loads[:-1], kv)


def test_a_store_that_comes_back_short_in_silence_is_seen_through() -> None:
    late = Delayed(Silent())
    pool = saved(late, [1, 2])
    late.start_load_kv(chain(1, 2), pool)
    assert late.get_finished(pool) == (set(), {0})
    assert pool.written == []
    assert [failure.partition(":")[0] for failure in late.failures] == ["request 0"]


class Careless(Connector):
    """Gives the same content for every key, whatever the pool looks like."""

    def has(self, group: int, block_hash: bytes) -> bool:
        return True

    def start_load_kv(self, loads, kv):  # type: ignore[no-untyped-def]
        for load in loads:
            kv.write_block(load.group, load.block_id, {"unknown": 1})

    def save_kv(self, saves, kv):  # type: ignore[no-untyped-def]
        return ()

    def forget(self, transfers):  # type: ignore[no-untyped-def]
        """It knows nothing."""

    def describe(self) -> str:
        return "careless"


def test_content_that_the_pool_refuses_is_a_failed_load_reported_once() -> None:
    late, pool = Delayed(Careless()), TensorPool()
    late.start_load_kv(chain(1), pool)
    arrived, failed = late.get_finished(pool)
    assert (arrived, failed, pool.written) == (set(), {0}, [])
    assert late.failures[0].startswith("request 0: AssertionError")
    assert late.get_finished(pool) == NOTHING


def test_another_shape_is_seen_before_anything_is_written() -> None:
    late = Delayed(HostStore())
    saved(late, [1])
    other = TensorPool(block_size=8)
    late.start_load_kv(chain(1), other)
    assert late.get_finished(other) == (set(), {0})
    assert "float32[4, 2, 8], but the pool has layers.0.keys float32[8, 2, 8]" in late.failures[0]


def test_after_an_interrupted_poll_the_next_one_reports_all() -> None:
    class Interrupting(TensorPool):
        def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
            if (group, block_id) not in self.written and block_id == 2:
                self.written.append((group, block_id))
                raise KeyboardInterrupt
            super().write_block(group, block_id, kv)

    late = Delayed(HostStore())
    pool = Interrupting()
    saved(late, [1, 2], pool)
    late.start_load_kv([transfer(1, request_id=1), transfer(2, request_id=2)], pool)
    with pytest.raises(KeyboardInterrupt):
        late.get_finished(pool)
    assert late.get_finished(pool) == ({1, 2}, set())


def test_closing_drops_what_is_on_its_way() -> None:
    late = Delayed(HostStore())
    pool = saved(late, [1])
    late.start_load_kv(chain(1), pool)
    late.close()
    assert (late.get_finished(pool), pool.written) == (NOTHING, [])


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2", True])
def test_steps_are_checked(steps: int) -> None:
    with pytest.raises(ConfigError, match=r"steps must be a positive"):
        Delayed(HostStore(), steps)


def test_late_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="synchronous loads"):
        Delayed(Delayed(HostStore()))
