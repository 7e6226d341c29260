"""Loads on threads: they arrive, fail, hang, come too late, and never write to the pool by themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from threading import current_thread

import pytest

from engine.external.pools import KV, TensorPool, chain, held, saved, transfer
from faulty_stores import Hangs, RaisesOnLoad
from labengine.config import ConfigError
from labengine.engine.external import HostStore, KVStore, Threaded
from waiting import PATIENCE, join, wait_until


class OwnThreadPool(TensorPool):
    """A pool that only the test's thread may look at or write to."""

    def read_block(self, group: int, block_id: int):  # type: ignore[no-untyped-def]
        assert current_thread() is threading.main_thread()
        return super().read_block(group, block_id)

    def write_block(self, group: int, block_id: int, kv: KV | None) -> None:
        assert current_thread() is threading.main_thread()
        super().write_block(group, block_id, kv)


def outcome(late: Threaded, pool: TensorPool) -> tuple[set[int], set[int]]:
    """Return the requests whose loads arrived and failed, as soon as there is one."""
    finished: tuple[set[int], set[int]] = (set(), set())

    def has_finished() -> bool:
        nonlocal finished
        finished = late.get_finished(pool)
        return any(finished)

    wait_until(has_finished, "a load to be over", between=lambda: late.wait(1.0))
    return finished


def load_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "labengine-load"]


@pytest.fixture
def hanging() -> Iterator[Hangs]:
    store = Hangs(HostStore(), times=1)
    yield store
    store.release()


def begin_to_hang(late: Threaded, store: Hangs, request_id: int, pool: TensorPool) -> None:
    """Load block 1 for a request; no load that begins later can come before it, and hang in its place."""
    late.start_load_kv(chain(1, request_id=request_id), pool)
    wait_until(lambda: store.num_faults == 1, "the load to hang")


def test_blocks_arrive_bit_by_bit_through_the_callers_thread(store: KVStore) -> None:
    late, pool = Threaded(store), OwnThreadPool()
    saved(late, [1, 2], pool)
    before = pool.bits(transfer(1))
    late.start_load_kv([transfer(1, block_id=8, request_id=5), transfer(2, block_id=9, request_id=5)], pool)
    assert pool.written == []
    assert outcome(late, pool) == ({5}, set())
    assert pool.bits(transfer(8)) == before
    assert late.get_finished(pool) == (set(), set())


def test_many_loads_at_once(store: KVStore) -> None:
    late, pool = Threaded(store), OwnThreadPool(num_blocks=64)
    names = range(1, 25)
    saved(late, names, pool)
    before = {name: pool.bits(transfer(name)) for name in names}
    late.start_load_kv([transfer(name, block_id=name + 30, request_id=name) for name in names], pool)
    finished: set[int] = set()
    while finished != set(names):
        arrived, failed = outcome(late, pool)
        assert not failed and not arrived & finished
        finished |= arrived
    assert all(pool.bits(transfer(name + 30)) == before[name] for name in names)


def test_an_error_on_the_thread_is_a_failed_load() -> None:
    late, pool = Threaded(RaisesOnLoad(HostStore(), times=1)), OwnThreadPool()
    saved(late, [1], pool)
    late.start_load_kv(chain(1), pool)
    assert outcome(late, pool) == (set(), {0})
    assert (pool.written, held(late, [1])) == ([], [])
    assert late.failures == ["request 0: could not load 1 block: the store fails on purpose"]


def test_a_load_that_hangs_fails_in_time_and_its_late_success_goes_nowhere(hanging: Hangs) -> None:
    late, pool = Threaded(hanging, timeout_s=0.05), OwnThreadPool()
    saved(late, [1], pool)
    late.start_load_kv(chain(1), pool)
    threads = load_threads()
    assert threads
    assert outcome(late, pool) == (set(), {0})
    assert [failure.partition(" block")[0] for failure in late.failures] == ["request 0: 1"]
    hanging.release()
    join(*threads)
    assert late.get_finished(pool) == (set(), set())
    assert pool.written == []


def test_what_hung_is_missing_until_it_is_saved_again(hanging: Hangs) -> None:
    late, pool = Threaded(hanging, timeout_s=0.05), OwnThreadPool()
    saved(late, [1, 2], pool)
    late.start_load_kv(chain(1), pool)
    outcome(late, pool)
    assert held(late, [1, 2]) == [2]
    assert late.save_kv(chain(1), pool) == ()  # the store behind has it still
    assert held(late, [1, 2]) == [1, 2]
    late.timeout_s = PATIENCE
    late.start_load_kv(chain(1), pool)
    assert outcome(late, pool) == ({0}, set())


def test_a_cancelled_load_never_writes_even_if_it_has_finished(hanging: Hangs) -> None:
    late, pool = Threaded(hanging, timeout_s=PATIENCE), OwnThreadPool()
    saved(late, [1, 2], pool)
    begin_to_hang(late, hanging, 1, pool)
    late.start_load_kv(chain(2, request_id=2), pool)
    late.wait(PATIENCE)
    for request_id in (1, 2):  # the one hangs, the other has loaded
        late.cancel(request_id)
    threads = load_threads()
    hanging.release()
    join(*threads)
    assert (late.get_finished(pool), pool.written) == ((set(), set()), [])


def test_a_request_that_loads_anew_is_not_served_by_its_old_load(hanging: Hangs) -> None:
    late, pool = Threaded(hanging, timeout_s=PATIENCE), OwnThreadPool()
    saved(late, [1, 2], pool)
    late.start_load_kv([transfer(1, block_id=8)], pool)
    late.cancel(0)
    late.start_load_kv([transfer(2, block_id=9)], pool)
    hanging.release()
    assert outcome(late, pool) == ({0}, set())
    assert pool.written == [(0, 9)]


def test_waiting_ends_when_a_load_finishes_or_is_cancelled_or_at_the_timeout(hanging: Hangs) -> None:
    late, pool = Threaded(hanging, timeout_s=PATIENCE), OwnThreadPool()
    assert waited(late, PATIENCE) < SOON_S  # nothing is on its way
    saved(late, [1, 2], pool)
    begin_to_hang(late, hanging, 1, pool)
    assert 0.04 < waited(late, 0.05) < SOON_S
    assert late.get_finished(pool) == (set(), set())
    late.timeout_s = 0.1
    assert waited(late, PATIENCE) < SOON_S  # given up
    assert waited(late, PATIENCE) < SOON_S
    assert late.get_finished(pool) == (set(), {1})
    late.timeout_s = PATIENCE
    late.start_load_kv(chain(2, request_id=2), pool)
    assert waited(late, PATIENCE) < SOON_S
    assert late.get_finished(pool) == ({2}, set())


SOON_S = PATIENCE / 2
"""A wait that does not end with its reason takes the whole patience."""


def waited(late: Threaded, timeout_s: float) -> float:
    began = time.monotonic()
    late.wait(timeout_s)
    return time.monotonic() - began


def test_closing_does_not_wait_for_what_hangs(hanging: Hangs) -> None:
    late, pool = Threaded(hanging), OwnThreadPool()
    saved(late, [1], pool)
    late.start_load_kv(chain(1), pool)
    late.close()
    assert any(thread.is_alive() for thread in load_threads()), "the load hangs on"
    assert (late.get_finished(pool), pool.written) == ((set(), set()), [])


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan"), "soon", True, None])
def test_timeouts_are_checked(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="timeout_s "):
        Threaded(HostStore(), timeout_s)
