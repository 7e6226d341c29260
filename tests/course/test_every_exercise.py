"""Every exercise of the course: blank it says what to do, the solution passes, a common mistake gets its hint."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

import labengine
from labengine.course.base import Exercise
from labengine.course.first_wrong_exercise import FirstWrongExercise
from labengine.course.predict_exercise import PredictExercise
from labengine.course.words import NOTEBOOKS, exercise_names

KINDS = {"Fill in": 20, "Find the first wrong event": 10, "Predict, then reveal": 20, "Make it better": 6}
"""Kinds, and how many of each there are at least."""

each_exercise = pytest.mark.parametrize("name", exercise_names())


@cache
def made(name: str) -> Exercise:
    """Return an exercise that the tests of it share."""
    return labengine.exercise(name)


def tried(exercise: Exercise, answers: Any) -> Any:
    exercise._start_over()
    return [exercise.check(answer) for answer in answers][-1]


def test_there_are_some_of_each_kind() -> None:
    kinds = [made(name).kind for name in exercise_names()]
    assert {kind: kinds.count(kind) >= number for kind, number in KINDS.items()} == dict.fromkeys(KINDS, True)
    topics = [name.partition("/")[0] for name in exercise_names()]
    assert {topic: topics.count(topic) >= 5 for topic in NOTEBOOKS} == dict.fromkeys(NOTEBOOKS, True)


@each_exercise
def test_its_author_can_verify_it(name: str) -> None:
    """Blank it says what to do, its solution passes, and each common mistake gets the hint that fits."""
    exercise = made(name)
    exercise.verify()
    assert ".check(" in exercise.how_to_answer or ".answer(" in exercise.how_to_answer
    assert len(labengine.progress()) == 0


@pytest.mark.parametrize("name", [name for name in exercise_names() if isinstance(made(name), FirstWrongExercise)])
def test_an_event_comes_with_its_reason(name: str) -> None:
    exercise = made(name)
    assert isinstance(exercise, FirstWrongExercise) and len(exercise.because) > 40
    assert ".check(2)" in exercise.how_to_answer and not tried(exercise, [2]), "the example is not the answer"
    [right] = exercise._right_answers()
    assert exercise.because in tried(exercise, [right]).lines
    assert exercise.because in " ".join(exercise.solution_text().split())
    blocks = {int(block) for block in re.findall(r"#(\d+)", exercise.because)}
    snapshot = exercise.lab.timeline.state(right + 1).snapshot()
    held = {block for request in snapshot.requests.values() for table in request.block_tables for block in table}
    assert blocks <= held, "each block that it names is in a table then"


def test_what_a_task_says_of_a_run_is_so() -> None:
    def broken(name: str) -> set[tuple[str, int]]:
        exercise = made(name)
        assert isinstance(exercise, FirstWrongExercise)
        return {(one.rule, one.step) for one in exercise.judged.violations}

    assert ("read", 3) in broken("first-light/shared-free")
    assert ("read", 2) in broken("why-blocks/twice")


@each_exercise
def test_it_has_hints_and_a_solution_to_read(name: str) -> None:
    exercise = labengine.exercise(name)
    assert exercise.mistakes and exercise.text.hints
    for number, hint in enumerate(exercise.text.hints, 1):
        assert str(exercise.hint().text) == f"Hint {number} of {len(exercise.text.hints)}: {hint}"
    assert ".solution()" in repr(exercise.hint())
    assert exercise.solution().text
    seen = labengine.progress()[name]
    assert (seen.hints, seen.has_seen_solution, seen.tries) == (len(exercise.text.hints), True, 0)


@pytest.mark.parametrize("name", [name for name in exercise_names() if isinstance(made(name), PredictExercise)])
def test_the_next_step_answers_what_is_asked(name: str) -> None:
    exercise = labengine.exercise(name)
    assert isinstance(exercise, PredictExercise)
    for answer in exercise._right_answers():
        assert exercise.question.is_open
        exercise.answer(answer)
        exercise.take_step()
        assert exercise.question.is_right and "right" in exercise.question.verdict
    assert not exercise.question.is_open
    assert labengine.progress()[name].passed, "a step that the dashboard takes counts too"
    assert exercise.check() and labengine.progress()[name].tries == 1
