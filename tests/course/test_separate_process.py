"""A reader's code that sleeps, waits, computes, prints or fills the memory without end gets a verdict, and soon."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import labengine
from labengine.course import separate_process
from labengine.finder import child, limits

Answer = Callable[..., Any]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "COMPUTING_S", 1.5)
    monkeypatch.setattr(child, "NUM_ASLEEP", 10)
    monkeypatch.setattr(limits, "MEMORY_BYTES", 2**27)


class LoopsAsText(int):
    """A value whose text never ends."""

    def __repr__(self) -> str:
        while True:
            pass


def grow() -> None:
    text = "x"
    while True:
        text += text


def print_without_end() -> None:
    while True:
        print("x" * 1000)


def lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


ENDLESS: dict[str, tuple[Answer, str]] = {
    "sleeps": (lambda: time.sleep(1000), "waits for something that never comes"),
    "waits for a lock": (lock_twice, "waits for something that never comes"),
    "computes in C": (lambda: sum(range(10**12)), "processor time"),
    "has endless text": (lambda: LoopsAsText(3), "processor time"),
    "fills the memory": (grow, "raises MemoryError"),
    "prints": (print_without_end, "does not end"),
    "exits": (sys.exit, "raises SystemExit"),
    "ends the process": (lambda: os._exit(0), "ends the process (exit code 0)"),
    "kills itself": (lambda: os.kill(os.getpid(), 9), "was killed (signal 9)"),
    "interrupts": (lambda: (_ for _ in ()).throw(KeyboardInterrupt()), "KeyboardInterrupt"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_function_that_never_comes_back_gets_a_verdict(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    act, says = ENDLESS[name]
    one = labengine.exercise("slots", "What is the slot?", solution=lambda position: position, cases=[(1,), (5,)])
    result = one.check(lambda position: act())
    assert result.state == "wrong" and says in result.text
    assert len(capsys.readouterr().out) <= separate_process.MAX_PRINTED + 100


@pytest.mark.parametrize("name", [name for name in ENDLESS if name != "has endless text"])
def test_so_does_an_override(name: str) -> None:
    act, says = ENDLESS[name]

    def num_missing_blocks(self: Any, request: Any, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size) - len(request.block_tables[self.index])

    right = num_missing_blocks

    def num_missing_blocks(self: Any, request: Any, num_tokens: int) -> Any:  # type: ignore[no-redef]
        return right(self, request, num_tokens) if act() is None else 1

    one = labengine.exercise(
        "grow", "How many?", solution=right, workloads=[lambda lab: (lab.add(token_ids=[1, 2]), lab.step())]
    )
    result = one.check(num_missing_blocks)
    assert result.state == "wrong" and says.removeprefix("raises ") in result.text


def test_what_an_answer_prints_is_shown_and_what_it_changes_stays_there(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    def slot(position: int) -> int:
        print("looking at", position)
        seen.append(position)
        return position

    one = labengine.exercise("slots", "What is the slot?", solution=lambda position: position, cases=[(1,), (5,)])
    assert one.check(slot)
    assert capsys.readouterr().out == "looking at 1\nlooking at 5\n" and seen == []


def test_scores_of_a_policy_come_back() -> None:
    one = labengine.exercise("your-policy/waiting")
    num_before = len(one.runs)  # type: ignore[attr-defined]
    assert one.check(one.right_answer)
    assert len(one.runs) > num_before  # type: ignore[attr-defined]
