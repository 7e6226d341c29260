"""Questions in the text of notebooks: endless instances, each with its answer, its reason and its marks."""

from __future__ import annotations

from random import Random

import pytest

import labengine
from labengine.config import ConfigError
from labengine.course.predict_exercise import PredictExercise
from labengine.course.words import exercise_names

NUM_INSTANCES = 6


def asked(name: str) -> PredictExercise:
    exercise = labengine.exercise(name)
    assert isinstance(exercise, PredictExercise)
    exercise._random = Random(name)
    return exercise


PREDICTED = [name for name in exercise_names() if labengine.exercise(name).kind == PredictExercise.kind]
ENDLESS = [name for name in PREDICTED if asked(name)._another is not None]


def test_what_notebooks_of_the_first_hours_ask_is_endless() -> None:
    first = ("why-blocks/", "first-light/", "continuous-batching/", "prefix-caching/")
    assert [name for name in PREDICTED if name.startswith(first) and name not in ENDLESS] == []


@pytest.mark.parametrize("name", ENDLESS)
def test_another_one_is_another_one_and_has_its_answer(name: str) -> None:
    exercise = asked(name)
    tasks, answers, pictures = [exercise.text.task], [], set()
    for _ in range(NUM_INSTANCES):
        exercise.another()
        assert exercise.question.text == exercise.text.task
        tasks.append(exercise.text.task)
        lab = exercise.lab
        pictures.add(
            tasks[-1] + "".join(lab.token_text(i) for one in lab.snapshot().requests.values() for i in one.token_ids)
        )
        right = exercise._right_answers()
        for answer in right:
            exercise.answer(answer)
            exercise.take_step()
            assert exercise.question.is_right, (exercise.text.task, exercise.question.verdict)
        answers.append(right)
    assert len(pictures) > NUM_INSTANCES // 2
    exercise.again()
    assert exercise.question.text == tasks[-1] and exercise._right_answers() == answers[-1]
    assert {tuple(answer) for answer in answers} != {tuple(answers[0])} or exercise.about == "hash"
    exercise.lab.close()


@pytest.mark.parametrize("name", ENDLESS)
def test_a_wrong_answer_has_its_reason_and_marks_both(name: str) -> None:
    exercise = asked(name)
    for exercise_number in range(3):
        if exercise_number:
            exercise.another()
        [right, *_] = exercise._right_answers()
        snapshot = exercise.lab.snapshot()
        others = {
            "number": [0, 1],
            "block": range(len(snapshot.blocks)),
            "request": snapshot.requests,
            "hash": snapshot.prefix_map,
        }[exercise.about]
        said = next(one for one in others if one != right)
        exercise.answer(said)
        exercise.take_step()
        question = exercise.question.to_dict()
        assert question["is_right"] is False and question["reason"]
        marks = [] if exercise.about == "number" else [[exercise.about, said]]
        assert question["said"][:1] == marks and question["truth"][:1] == [[k, right] for k, _ in marks]
        assert {"again", "hint", "another"} <= {*question["offers"]}
    exercise.lab.close()


def test_the_reader_asks_in_the_picture() -> None:
    exercise = asked("first-light/after")
    session = exercise.lab.session
    first = exercise.question.text
    session.wish("hint")
    assert exercise.question.hint.startswith("Hint 1 of 2") and "hint" in exercise.question.offers
    session.wish("hint")
    assert exercise.question.hint.startswith("Hint 2 of 2") and "hint" not in exercise.question.offers
    assert labengine.progress()["first-light/after"].hints == 2
    with pytest.raises(ConfigError, match="'again'"):
        session.wish("again")
    session.predict(8)
    exercise.lab.step()
    assert "middle of the step" in exercise.question.reason
    session.wish("again")
    assert exercise.question.text == first and exercise.lab.snapshot().step == 0 and exercise.question.is_open
    session.wish("another")
    assert exercise.question.text != first and exercise.question.hint == "" and "hint" in exercise.question.offers
    with pytest.raises(ConfigError, match="instance"):
        asked("hunt/" + next(n for n in PREDICTED if n.startswith("hunt/")).partition("/")[2]).another()


def test_a_question_about_many_steps_is_answered_by_going_on() -> None:
    exercise = asked("continuous-batching/static-steps")
    assert exercise.answer(20) is not None and "go" in exercise.question.offers
    exercise.lab.session.wish("go")
    assert exercise.question.is_right and exercise.lab.snapshot().step == 20
    exercise.again()
    result = exercise.check(12)
    assert not result and "longest answer" in result.text
