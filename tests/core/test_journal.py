"""The undo journal: newest first, once, and only what came after `open`."""

from __future__ import annotations

from random import Random

from labengine.core.journal import Journal


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
    rng, journal, items = Random(0), Journal(), list(range(5))
    for _ in range(50):
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
