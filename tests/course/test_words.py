"""Words of exercises: each notebook's TOML file fits its code, and a misfit is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.course import words
from labengine.course.base import Exercise
from labengine.course.words import NOTEBOOKS, exercise_names
from labengine.words_file import WordsFile


def test_the_code_of_every_exercise_has_its_words() -> None:
    for topic in NOTEBOOKS:
        labengine.exercise(next(name for name in exercise_names() if name.startswith(f"{topic}/")))
    assert set(words._codes) == set(exercise_names())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('hint = ["Look."]', r"mine\.toml, line 3: .*'hints'"),
        ('mistakes = ["One.", "Two."]', r"mine\.toml, line 1: 'half' .*1.*2"),
    ],
)
def test_words_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, line: str, message: str) -> None:
    key, value = line.split(" = ")
    table = {"task": "Halve it.", key: json.loads(value)}
    with pytest.raises(ConfigError, match=message):
        _halving(monkeypatch, table, [lambda n: n], f'[half]\ntask = "Halve it."\n{line}\n')


def test_mistakes_in_a_list_share_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    same, more = (lambda n: n), (lambda n: n + 1)
    made = _halving(monkeypatch, {"task": "Halve it.", "mistakes": ["Not halved."]}, [[same, more]])
    assert made.mistakes == ((same, "Not halved."), (more, "Not halved."))


def _halving(patch: pytest.MonkeyPatch, table: dict[str, object], mistakes: list[Any], text: str = "") -> Exercise:
    """Return the exercise mine/half, of these words and mistakes."""
    patch.setattr(words, "words_of", lambda topic: WordsFile(Path("mine.toml"), text, {"half": table}))
    patch.setattr(words, "NOTEBOOKS", {"mine": ()})
    patch.setattr(words, "_codes", {})

    words.course_exercise("mine/half", solution=lambda n: n // 2, cases=[(4,)], mistakes=mistakes)
    return labengine.exercise("mine/half")
