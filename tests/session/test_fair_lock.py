"""FairLock: first come, first served; reentrant; an interrupt while waiting leaves the queue in order."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ctrl_c import press_ctrl_c_in_main_thread
from labengine.session.fair_lock import FairLock
from waiting import PATIENCE, join, wait_until


def num_waiting(lock: FairLock) -> int:
    return len(lock._queue)


@contextmanager
def others(lock: FairLock, number: int, order: list[str]) -> Iterator[None]:
    """Threads '0', '1' ... that ask for the lock in this order, and note when they have it; joined at the end."""
    threads = []
    before = num_waiting(lock)
    for i in range(number):
        thread = threading.Thread(target=_take, args=(lock, str(i), order), daemon=True)
        thread.start()
        wait_until(lambda i=i: num_waiting(lock) == before + i + 1)  # type: ignore[misc]
        threads.append(thread)
    yield
    join(*threads)


def _take(lock: FairLock, name: str, order: list[str]) -> None:
    with lock:
        order.append(name)


def held_elsewhere(lock: FairLock) -> threading.Event:
    """Have another thread hold the lock until the returned event is set."""
    is_held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            let_go.wait(PATIENCE)

    threading.Thread(target=hold, daemon=True).start()
    is_held.wait(PATIENCE)
    return let_go


def assert_free(lock: FairLock) -> None:
    """Take the lock in another thread, which waits forever if it is held."""
    thread = threading.Thread(target=_take, args=(lock, "other", []), daemon=True)
    thread.start()
    join(thread)


def test_waiters_are_served_in_the_order_of_asking() -> None:
    lock, order = FairLock(), list[str]()
    lock.__enter__()
    with others(lock, 8, order):
        assert order == []
        lock.__exit__(None, None, None)
    assert order == [str(i) for i in range(8)]


def test_the_owner_may_enter_again_and_frees_it_only_at_the_end() -> None:
    lock, order = FairLock(), list[str]()
    lock.__enter__()
    with others(lock, 1, order):
        with lock, lock:
            pass
        assert order == [] and num_waiting(lock) == 1
        lock.__exit__(None, None, None)
    assert order == ["0"]


def test_a_busy_owner_lets_those_who_wait_go_first() -> None:
    lock, order = FairLock(), list[str]()
    lock.__enter__()
    with others(lock, 1, order):
        lock.__exit__(None, None, None)
        with lock:
            order.append("busy")
    assert order == ["0", "busy"]


def test_an_error_inside_frees_the_lock() -> None:
    lock = FairLock()
    with pytest.raises(KeyError), lock, lock:
        raise KeyError
    assert_free(lock)


def test_only_one_is_inside() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert most == 1 and inside == 0
    assert_free(lock)


def test_an_interrupt_while_waiting_leaves_the_queue_in_order() -> None:
    """A real SIGINT reaches this thread in the middle of the queue; the threads after it keep their places."""
    lock, order = FairLock(), list[str]()
    let_go = held_elsewhere(lock)

    def interrupt_once_queued() -> None:
        wait_until(lambda: num_waiting(lock) == 3)  # two before, then this thread
        press_ctrl_c_in_main_thread()

    with others(lock, 2, order):
        interrupter = threading.Thread(target=interrupt_once_queued, daemon=True)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt), lock:
            order.append("interrupted")
        assert num_waiting(lock) == 2 and order == []
        let_go.set()
    assert order == ["0", "1"]
    assert_free(lock)


def test_an_interrupt_just_before_the_wait_is_not_lost() -> None:
    """It wakes no system call that begins after it; nor does interrupt_main()."""
    lock = FairLock()
    let_go = held_elsewhere(lock)

    def interrupt_without_waking() -> None:
        wait_until(lambda: num_waiting(lock) == 1)
        time.sleep(0.02)  # the main thread is in its system call
        _thread.interrupt_main()

    _thread.start_new_thread(interrupt_without_waking, ())
    release = threading.Timer(PATIENCE, let_go.set)  # only a test that fails waits so long
    release.start()
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    release.cancel()
    let_go.set()
    assert_free(lock)


class GateInterruptedOnceOpen:
    """A lock whose acquire() is interrupted, on the main thread, in the moment in which it succeeds."""

    def __init__(self) -> None:
        self._lock, self._num_taken = threading.Lock(), 0

    def acquire(self, timeout: float = -1) -> bool:
        is_taken = self._lock.acquire(timeout=timeout)
        self._num_taken += is_taken
        if self._num_taken == 2 and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return is_taken

    def release(self) -> None:
        self._lock.release()


def test_an_interrupt_just_as_the_lock_comes_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, order = FairLock(), list[str]()
    let_go = held_elsewhere(lock)

    def queue_up_and_let_go() -> None:
        wait_until(lambda: num_waiting(lock) == 1)  # the main thread is in line
        with others(lock, 1, order):
            let_go.set()

    gates = SimpleNamespace(Lock=GateInterruptedOnceOpen, get_ident=threading.get_ident)
    monkeypatch.setattr("labengine.session.fair_lock.threading", gates)
    behind = threading.Thread(target=queue_up_and_let_go, daemon=True)
    behind.start()
    with pytest.raises(KeyboardInterrupt), lock:
        order.append("interrupted")
    join(behind)
    assert order == ["0"]
    assert_free(lock)
