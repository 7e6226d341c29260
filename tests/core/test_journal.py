"""The undo journal: newest first, once, and only what came after `open`."""

from __future__ import annotations

from random import Random

from labengine.core.journal import Journal
from random_cases import for_random


def test_rolls_back_newest_first() -> None:
    journal, undone = Journal(), list[object]()
    for number in range(3):
        journal.record((undone.append, number))
    journal.rollback()
    assert undone == [2, 1, 0]


def test_a_second_rollback_undoes_nothing_more() -> None:
    journal, undone = Journal(), list[object]()
    journal.record((undone.append, 1))
    journal.rollback()
    journal.rollback()
    assert undone == [1]


def test_open_and_commit_forget_the_past() -> None:
    journal, undone = Journal(), list[object]()
    journal.record((undone.append, "before open"))
    journal.open()
    journal.record((undone.append, "committed"))
    journal.commit()
    journal.rollback()
    assert undone == []


def test_random_list_edits_are_taken_back_exactly() -> None:
    for_random(lambda rng: _edits_are_taken_back(rng, rng.randint(1, 5)), examples=50)
    _edits_are_taken_back(Random(0), num_rounds=50)


def _edits_are_taken_back(rng: Random, num_rounds: int) -> None:
    journal, items = Journal(), list(range(5))
    for _ in range(num_rounds):
        before = list(items)
        journal.open()
        for _ in range(rng.randint(0, 20)):
            if items and rng.random() < 0.5:
                journal.record((items.append, items[-1]))
                items.pop()
            else:
                journal.record((items.pop,))
                items.append(rng.randrange(9))
        journal.rollback()
        assert items == before


def test_what_was_begun_ahead_outlives_the_commit_and_goes_alone() -> None:
    journal, undone = Journal(), list[object]()
    journal.record((undone.append, "this step"))
    journal.begin_next()
    journal.record((undone.append, "ahead, first"))
    journal.record((undone.append, "ahead, last"))
    journal.commit()
    journal.open()
    journal.rollback_next()
    assert undone == ["ahead, last", "ahead, first"]
    journal.record((undone.append, "between steps"))
    journal.open()
    journal.rollback()
    assert undone == ["ahead, last", "ahead, first"]


def test_what_was_begun_ahead_becomes_the_step_under_way() -> None:
    journal, undone = Journal(), list[object]()
    journal.begin_next()
    journal.record((undone.append, "begun ahead"))
    journal.commit()
    journal.open()
    journal.enter_next()
    journal.record((undone.append, "the rest"))
    journal.rollback_next()
    assert undone == [], "the next step has become the current one"
    journal.rollback()
    assert undone == ["the rest", "begun ahead"]


def test_a_rollback_takes_what_was_begun_ahead_too() -> None:
    journal, undone = Journal(), list[object]()
    journal.record((undone.append, "this step"))
    journal.record((undone.append, "ahead"))
    journal.begin_next(1)
    journal.rollback()
    assert undone == ["ahead", "this step"]
    journal.record((undone.append, "later"))
    journal.commit()
    assert not journal


def test_a_commit_that_was_missed_is_made_up_for_when_the_next_step_opens() -> None:
    """As when Ctrl-C comes right between the end of a step and its commit."""
    journal, undone = Journal(), list[object]()
    journal.record((undone.append, "this step"))
    journal.begin_next()
    journal.record((undone.append, "ahead"))
    journal.open()
    journal.rollback()
    assert undone == ["ahead"]
