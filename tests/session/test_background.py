"""The background: steps while running, posted calls in between, errors kept, and an end that leaves nothing behind."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from labengine.session.background import Background
from waiting import PATIENCE, join, wait_until


class Work:
    """Steps that can be counted, delayed, and made to fail."""

    def __init__(self) -> None:
        self.left = 1_000_000_000
        self.num_begun = self.num_done = 0
        self.may_step = threading.Event()
        """While cleared, a step that has begun does not end."""
        self.may_step.set()
        self.is_held_up = False
        """True once a step has begun after may_step was cleared."""
        self.error: BaseException | None = None

    def step(self) -> bool:
        if self.error is not None:
            raise self.error
        if not self.left:
            return False
        self.num_begun += 1
        self.is_held_up = not self.may_step.is_set()
        assert self.may_step.wait(PATIENCE)
        time.sleep(0.0001)  # other threads need not ask for the interpreter
        self.left, self.num_done = self.left - 1, self.num_done + 1
        return True


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def background(work: Work) -> Iterator[Background]:
    background = Background(work.step)
    yield background
    work.may_step.set()
    background.close()


def on_many_threads(call: Callable[[], object], number: int = 8) -> list[BaseException]:
    """Call from several threads at once; the errors."""
    errors: list[BaseException] = []
    gate = threading.Barrier(number)

    def together() -> None:
        gate.wait(PATIENCE)
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=together, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    join(*threads)
    return errors


def test_it_steps_after_start_and_not_after_pause(background: Background, work: Work) -> None:
    assert not background.is_running and work.num_done == 0
    background.start()
    assert background.is_running
    wait_until(lambda: work.num_done > 3)
    background.pause()
    assert not background.is_running
    done = work.num_done
    assert background.post(lambda: work.num_done).result(PATIENCE) == done, "the thread takes no step before a call"
    assert background.post(lambda: work.num_done).result(PATIENCE) == done, "nor after it"


def test_it_stops_by_itself_when_nothing_is_left(background: Background, work: Work) -> None:
    work.left = 5
    background.start()
    wait_until(lambda: not background.is_running)
    assert work.num_done == 5 and background.error is None


def test_it_starts_again_when_there_is_work_again(background: Background, work: Work) -> None:
    for _ in range(3):
        work.left, before = 2, work.num_done
        background.start()
        wait_until(lambda: not background.is_running)
        assert work.num_done == before + 2


def test_start_and_pause_from_many_threads(background: Background, work: Work) -> None:
    of_others = {*threading.enumerate()}

    def start_and_pause() -> None:
        for _ in range(20):
            background.start()
            background.pause()

    assert on_many_threads(start_and_pause) == []
    background.pause()
    assert not background.is_running
    assert sum(thread.name == "labengine" for thread in {*threading.enumerate()} - of_others) == 1


def test_there_is_one_thread_however_many_ask_first(background: Background) -> None:
    threads: set[int] = set()
    assert on_many_threads(lambda: threads.add(background.post(threading.get_ident).result(PATIENCE))) == []
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_pause_waits_for_the_step_under_way_and_no_longer(background: Background, work: Work) -> None:
    background.start()
    wait_until(lambda: work.num_done >= 1)
    work.may_step.clear()
    wait_until(lambda: work.is_held_up, "a step under way")
    begun = work.num_begun
    pause = threading.Thread(target=background.pause, daemon=True)
    pause.start()
    wait_until(lambda: not background._jobs.empty(), "the pause to be posted")
    assert pause.is_alive() and work.num_done == begun - 1
    work.may_step.set()
    join(pause)
    assert (work.num_begun, work.num_done) == (begun, begun), "that step was finished, and no other begun"


def test_a_posted_call_answers(background: Background) -> None:
    assert background.post(lambda: 6 * 7).result(PATIENCE) == 42


def test_posted_calls_run_in_order_between_steps(background: Background, work: Work) -> None:
    numbers: list[int] = []
    background.start()
    futures = [background.post(lambda i=i: numbers.append(i)) for i in range(50)]  # type: ignore[misc]
    for future in futures:
        future.result(PATIENCE)
    assert numbers == list(range(50)) and background.is_running


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_a_posted_calls_error_lands_in_its_future(background: Background, error: BaseException) -> None:
    def fail() -> None:
        raise error

    future = background.post(fail)
    assert future.exception(PATIENCE) is error
    assert background.error is None
    assert background.post(lambda: "alive").result(PATIENCE) == "alive"


@pytest.mark.parametrize("error", [RuntimeError("the forward failed"), KeyboardInterrupt()])
def test_a_step_that_raises_ends_the_run_and_is_kept(background: Background, work: Work, error: BaseException) -> None:
    work.error = error
    background.start()
    wait_until(lambda: not background.is_running)
    assert background.error is error
    background.pause()
    assert background.error is error, "pausing must not hide what went wrong"
    work.error = None
    background.start()
    assert background.error is None and background.is_running
    wait_until(lambda: work.num_done > 0)


def test_pausing_just_after_an_error_keeps_it(background: Background, work: Work) -> None:
    """The pause was asked for while the failing step was still under way."""
    is_stepping, may_fail = threading.Event(), threading.Event()

    def fail_once_interrupted() -> bool:
        is_stepping.set()
        assert may_fail.wait(PATIENCE)
        raise RuntimeError("late")

    background._step = fail_once_interrupted
    background.start()
    assert is_stepping.wait(PATIENCE)
    pause = threading.Thread(target=background.pause, daemon=True)
    pause.start()
    wait_until(lambda: not background._jobs.empty())
    may_fail.set()
    join(pause)
    assert repr(background.error) == repr(RuntimeError("late"))


def test_start_and_pause_may_be_posted(background: Background, work: Work) -> None:
    background.post(background.start).result(PATIENCE)
    assert background.is_running
    background.post(background.pause).result(PATIENCE)
    assert not background.is_running


def test_work_that_comes_while_running_is_done(background: Background, work: Work) -> None:
    work.left = 5
    work.may_step.clear()
    background.start()
    wait_until(lambda: work.num_begun > 0, "a step under way")

    def add_work() -> None:
        work.left += 5

    added = background.post(add_work)
    work.may_step.set()
    assert added.result(PATIENCE) is None
    wait_until(lambda: not background.is_running)
    assert work.num_done == 10


def test_the_thread_speaks_in_the_context_of_whoever_woke_it(background: Background) -> None:
    cell: contextvars.ContextVar[str] = contextvars.ContextVar("cell", default="none")
    cell.set("the first cell")
    assert background.post(cell.get).result(PATIENCE) == "the first cell"


def test_close_ends_the_thread_and_refuses_more(background: Background, work: Work) -> None:
    background.start()
    thread = background._thread
    assert thread is not None
    background.close()
    background.close()
    assert not thread.is_alive() and not background.is_running
    with pytest.raises(RuntimeError, match="closed"):
        background.start()
    with pytest.raises(RuntimeError, match="closed"):
        background.post(lambda: None)


def test_close_before_any_use_and_pause_after_it_are_harmless(background: Background) -> None:
    background.close()
    background.pause()
    assert background._thread is None


def test_close_may_be_posted(background: Background) -> None:
    background.post(background.close).result(PATIENCE)
    with pytest.raises(RuntimeError, match="closed"):
        background.start()


def test_what_was_posted_before_close_is_still_answered(background: Background, work: Work) -> None:
    """Threads post while another closes: each call is refused at once, or answered; none hangs."""
    futures: list[Future[Any]] = []

    def post_until_closed() -> None:
        while True:
            futures.append(background.post(lambda: None))

    def close_amid_them() -> None:
        wait_until(lambda: len(futures) > 4)
        background.close()

    closer = threading.Thread(target=close_amid_them)
    closer.start()
    errors = on_many_threads(post_until_closed, 4)
    join(closer)
    assert [str(error) for error in errors] == ["this lab is closed; make a new one"] * 4
    assert len(futures) > 4
    for future in futures:
        assert future.result(PATIENCE) is None
