"""Whatever a reader's code does to its process, the check reaches a verdict, and the kernel does not change."""

from __future__ import annotations

import builtins
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import labengine
from labengine.core.merge_policy import MergePolicy
from labengine.course import alone as course_alone
from labengine.course.words import exercise_names
from labengine.isolation import alone, endings, limits, looks

SLOT, KEEP, WAY = "why-blocks/slot", "late-merge/keep-first", "prefix-caching/in-the-way"
held = threading.Lock()
kept: list[object] = [0]


class LoopingRepr:
    """Its repr never comes back."""

    def __repr__(self) -> str:
        while True:
            pass


class ExitingRepr:
    """Its repr ends the process."""

    def __repr__(self) -> str:
        os._exit(0)


def waits_for_a_lock() -> None:
    with held, held:
        pass


def doubles() -> None:
    size, filled = 1000, []
    while True:
        filled.append(bytes(size))  # zeros that nobody has written: no time goes by
        size += size


def doubles_what_is_kept() -> None:
    while True:
        kept.append(bytes(1000 << len(kept)))


def fills_what_is_kept() -> None:
    """Fill memory to the last byte, so that the judge has none left."""
    size = 1 << 26
    while size >= 512:
        try:
            while True:
                kept.append(bytes(size))
        except MemoryError:
            size //= 2
    kept.append(bytes(1 << 26))


def prints() -> None:
    while True:
        print("once more")


def returns(value: Any) -> Callable[[], Any]:
    return lambda: value


def interrupts() -> None:
    raise KeyboardInterrupt


ENDINGS: dict[str, tuple[Callable[[], object], str]] = {
    "sleeps": (lambda: time.sleep(1000), "waiting for"),
    "waits for a lock": (waits_for_a_lock, "waits_for_a_lock (test_endings.py:"),
    "loops in C": (lambda: sum(range(10**12)), "s of processor time"),
    "loops in its repr": (returns(LoopingRepr()), "s of processor time"),
    "ends in its repr": (returns(ExitingRepr()), "(exit code 0), in ExitingRepr.__repr__"),
    "doubles": (doubles, "512 MiB"),
    "doubles what is kept": (doubles_what_is_kept, "512 MiB"),
    "fills what is kept": (fills_what_is_kept, "512 MiB"),
    "prints": (prints, "65,536 characters"),
    "sys.exit": (lambda: sys.exit(0), "nds the process"),
    "KeyboardInterrupt": (interrupts, "nds the process"),
    "os._exit": (lambda: os._exit(0), "(exit code 0), in <lambda> (test_endings.py:"),
    "kill": (lambda: os.kill(os.getpid(), 9), "(signal 9), in <lambda>"),
    "closed files": (lambda: os.closerange(3, 64), "it closes files"),
    "input": (lambda: builtins.input(), "EOFError"),
}
"""By name: what a reader's code does, and words of the verdict."""


def answers(act: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """Yield a function and an override that do this."""
    yield SLOT, lambda table, position, block_size: act()
    yield KEEP, type("KeepFirst", (MergePolicy,), {"mapped_after": lambda self, mapped, block_id: act()})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "COMPUTING_S", 0.5)
    monkeypatch.setattr(limits, "OPERATION_S", 0.4)
    monkeypatch.setattr(looks, "NUM_ASLEEP", 4)


def kernel_state() -> tuple[object, ...]:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM, signal.SIGVTALRM)]
    timers = [signal.getitimer(timer)[1] for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)]
    streams = (sys.stdout, sys.stderr, builtins.input, sys.getprofile())
    return (*handlers, *timers, *streams, threading.active_count(), held.locked(), tuple(kept), os.getpid())


@pytest.mark.parametrize("name", ENDINGS)
def test_each_end_has_a_verdict_and_leaves_the_kernel_as_it_was(name: str) -> None:
    act, said = ENDINGS[name]
    for exercise_name, answer in answers(act):
        exercise, before = labengine.exercise(exercise_name), kernel_state()
        result = exercise.check(answer)
        assert result.state == "wrong"
        assert said in result.text or (exercise_name == KEEP and "`mapped_after` must return" in result.text)
        assert kernel_state() == before
        assert labengine.progress()[exercise_name].tries == 1


@pytest.mark.parametrize("name", ["sleeps", "loops in C", "os._exit", "doubles", "prints", "sys.exit"])
def test_show_survives_it_too(name: str) -> None:
    for exercise_name, answer in answers(ENDINGS[name][0]):
        if exercise_name == KEEP and name in ("doubles", "sys.exit"):
            continue  # these are drawn at their crash
        before = kernel_state()
        assert labengine.exercise(exercise_name).show(answer).state == "wrong"
        assert kernel_state() == before


class Number:
    """A number that takes its time to say which."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __index__(self) -> int:
        self._act()
        return 1


@pytest.mark.parametrize("name", ["sleeps", "os._exit", "sys.exit", "prints"])
def test_a_prediction_and_an_event_that_run_code_have_a_verdict_too(name: str) -> None:
    for exercise_name in ("why-blocks/next-block", "reading-a-run/lost-entry"):
        result = labengine.exercise(exercise_name).check(Number(ENDINGS[name][0]))
        assert result.state == "wrong" and not result
    exercise: Any = labengine.exercise("why-blocks/next-block")
    assert exercise.answer(Number(ENDINGS[name][0])).state == "wrong"


def test_a_number_that_runs_code_and_comes_back_is_a_number() -> None:
    exercise: Any = labengine.exercise("why-blocks/next-block")
    assert exercise.answer(Number(lambda: None)).text.startswith("You predict #1.")
    event: Any = labengine.exercise("reading-a-run/lost-entry")
    assert event.check(Number(lambda: None)).text == event.check(1).text


def test_what_an_answer_prints_is_printed_and_what_it_keeps_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    exercise: Any = labengine.exercise(SLOT)

    def slot_of(table: list[int], position: int, block_size: int) -> int:
        seen.append(position)
        print("position", position)
        print("block size", block_size, file=sys.stderr)
        return int(exercise.right_answer(table, position, block_size))

    assert exercise.check(slot_of)
    printed = capsys.readouterr()
    assert printed.out.startswith("position 6\n") and printed.err.startswith("block size 4\n")
    assert printed.out.count("position") == len(exercise.cases) and seen == []


def test_the_runs_of_a_policy_come_back_from_its_process() -> None:
    exercise: Any = labengine.exercise(WAY)
    exercise.check(exercise.right_answer)
    assert [run.name for run in exercise.runs] == ["as it was", exercise.right_answer.__name__]
    assert labengine.progress()[WAY].score == exercise.runs[-1].total


class Text(str):
    """A text that brings code along."""

    def __reduce__(self) -> Any:
        return os._exit, (0,)


def test_texts_of_a_readers_class_come_back_as_texts() -> None:
    class Named:
        def __repr__(self) -> str:
            return Text("named")

    result = labengine.exercise(SLOT).check(lambda table, position, block_size: Named())
    assert "named" in result.text and result.table is not None
    assert {type(cell) for row in result.table.rows for cell in row} == {str}


def test_a_lock_that_another_thread_held_when_the_process_was_copied_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, num_started = threading.Lock(), [0]
    start = alone.forked

    def forked(*arguments: Any) -> Any:
        num_started[0] += 1
        with lock if num_started[0] == 1 else threading.Lock():
            return start(*arguments)

    monkeypatch.setattr(alone, "forked", forked)
    result = course_alone.answered_alone(lambda: lock.acquire() and "it came back")
    assert result == "it came back" and num_started == [2]


def test_ctrl_c_ends_a_check_and_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, deadline: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(alone._Call, "answer", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        labengine.exercise(SLOT).check(lambda table, position, block_size: 1)
    assert isinstance(raised.value, endings.UserInterrupt)
    assert len(labengine.progress()) == 0


@pytest.mark.parametrize("name", ["sleeps", "waits for a lock", "sys.exit", "KeyboardInterrupt"])
def test_where_no_process_can_be_copied_what_raises_or_sleeps_still_has_its_verdict(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course_alone, "can_fork", lambda: False)
    act, said = ENDINGS[name]
    for exercise_name, answer in answers(act):
        result = labengine.exercise(exercise_name).check(answer)
        assert result.state == "wrong" and said in result.text
        assert held.acquire(blocking=False) or name == "waits for a lock"
        held.release()


@pytest.mark.sweep
@pytest.mark.parametrize("exercise_name", ["paged-attention", "prefix-caching/chain", WAY, "hunt/registrable"])
@pytest.mark.parametrize("name", ENDINGS)
def test_each_end_in_other_exercises(name: str, exercise_name: str) -> None:
    act, _ = ENDINGS[name]
    names = [one for one in exercise_names() if one.startswith(exercise_name)]
    for one in names:
        exercise: Any = labengine.exercise(one)
        if not hasattr(exercise, "_prepare"):
            continue
        right = exercise.right_answer

        def answer(*_: Any) -> Any:
            return act()

        answer.__name__ = right.__name__
        made: Any = answer
        if isinstance(right, type):
            methods = [name for name in vars(right) if not name.startswith("_")]
            made = type(right.__name__, right.__bases__, dict.fromkeys(methods, answer))
        before = kernel_state()
        assert exercise.check(made).state == "wrong"
        assert kernel_state() == before
