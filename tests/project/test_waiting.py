"""Waits end on their condition or fail with its name; no test has its own time limit, or waits for a time."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import waiting
from waiting import join, wait_until

OWN_PATIENCE = re.compile(r"\btimeout=\d|\bmonotonic\(\) \+|\.(join|result)\([1-9]")
SLEEP = re.compile(r"(?<!between=lambda: )(?<![\w.])[\w.]*\bwait_for_timeout\(")
FOR_PICTURES = {
    "browser/test_first_light.py",
    "browser/test_views_in_lab.py",
    "widgets/compare/compare_page.py",
}
"""Files that wait for a time before they take a picture, until colours have changed: no assertion depends on it."""
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


def lines_of_tests() -> list[tuple[str, str]]:
    """Return (file, line) of all tests and their helpers."""
    files = [path for path in TESTS.rglob("*.py") if path.name not in ("waiting.py", "test_waiting.py")]
    assert len(files) > 100
    return [
        (path.relative_to(TESTS).as_posix(), line.strip())
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def test_no_test_has_a_patience_of_its_own() -> None:
    assert [found for found in lines_of_tests() if OWN_PATIENCE.search(found[1])] == []


def test_only_pictures_wait_for_a_time() -> None:
    assert {file for file, line in lines_of_tests() if SLEEP.search(line)} == FOR_PICTURES
