"""Waits end on their condition or fail with its name, and no test has a patience of its own."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import waiting
from waiting import join, wait_until

OWN_PATIENCE = re.compile(r"\btimeout=\d|\bmonotonic\(\) \+|\.(join|result)\([1-9]")
TESTS = Path(__file__).parents[1]


def test_a_wait_returns_once_its_condition_holds() -> None:
    looks = iter([False, False, True])
    wait_until(lambda: next(looks))
    assert next(looks, None) is None


def test_a_wait_that_times_out_names_its_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    with pytest.raises(AssertionError, match="waited 0 s for rain"):
        wait_until(lambda: False, "rain")
    with pytest.raises(AssertionError, match="waited 0 s for 3 clouds"):
        wait_until(lambda: False, lambda: f"{1 + 2} clouds")


def test_a_thread_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, name="endless")
    thread.start()
    with pytest.raises(AssertionError, match="endless has not ended"):
        join(thread)
    may_end.set()


def test_no_test_has_a_patience_of_its_own() -> None:
    files = [path for path in TESTS.rglob("*.py") if path.name not in ("waiting.py", "test_waiting.py")]
    lines = [(path, line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(files) > 100
    assert [f"{path.relative_to(TESTS)}: {line.strip()}" for path, line in lines if OWN_PATIENCE.search(line)] == []
