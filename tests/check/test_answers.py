"""Answers of two methods: whether they decide the same, and how they are said."""

from __future__ import annotations

import numpy as np
import pytest

from labengine.check.answers import MAX_TEXT, UNKNOWN, differ, plain, said, said_apart


def test_an_answer_that_can_be_looked_at_once_is_left_alone() -> None:
    once = iter((1, 2))
    assert plain(once) is UNKNOWN and plain([once]) is UNKNOWN and [*once] == [1, 2]
    assert not differ(plain((1, 2)), UNKNOWN)


@pytest.mark.parametrize(
    ("expected", "decided", "is_another"),
    [
        (range(2, -1, -1), [2, 1, 0], False),
        (range(3), [2, 1, 0], True),
        ([[1, 2]], ((1, 2),), False),
        (True, 1, False),
        (False, None, False),
        (True, [], True),
        (0, None, True),
        (3, np.int64(3), False),
    ],
)
def test_answers_are_compared_by_what_they_decide(expected: object, decided: object, is_another: bool) -> None:
    assert differ(plain(expected), plain(decided)) is is_another


def test_long_answers_are_said_where_they_differ() -> None:
    assert said([*range(100)]).startswith("[0, 1, 2") and len(said([*range(100)])) == MAX_TEXT
    left, right = said_apart([*range(100)], [*range(98), 98, 7])
    assert left.endswith("98, 99]") and right.endswith("98, 7]") and left.startswith("…")
    assert said_apart(b"0" * 32, b"0" * 31 + b"1")[1].endswith("31")
    assert said(b"\xff" * 32) == "ffffffffffff"
