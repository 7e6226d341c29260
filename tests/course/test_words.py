"""Words of exercises: each notebook's TOML file fits its code, and a misfit is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labengine.config import ConfigError
from labengine.course import words
from labengine.course.exercise import EXERCISES, exercise_names
from labengine.words_file import WordsFile


def test_every_table_has_its_exercise() -> None:
    tables = {f"{topic}/{short}" for topic in EXERCISES for short in words.words_of(topic).tables}
    assert tables <= set(exercise_names())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('hint = ["Look."]', "mine.toml, line 3: there is no text of an exercise 'hint'. Did you mean 'hints'?"),
        ('mistakes = ["One.", "Two."]', "mine.toml, line 1: 'half' has 1 mistakes in its code, and 2 here"),
    ],
)
def test_words_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, line: str, message: str) -> None:
    key, value = line.split(" = ")
    tables = {"half": {"task": "Halve it.", key: json.loads(value)}}
    monkeypatch.setattr(words, "words_of", lambda topic: _file(f'[half]\ntask = "Halve it."\n{line}\n', tables))
    with pytest.raises(ConfigError) as refused:
        words.course_exercise("mine/half", solution=lambda n: n // 2, cases=[(4,)], mistakes=[lambda n: n])
    assert str(refused.value) == message


def test_mistakes_in_a_list_share_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"half": {"task": "Halve it.", "mistakes": ["Not halved."]}}
    monkeypatch.setattr(words, "words_of", lambda topic: _file("", tables))
    same, more = (lambda n: n), (lambda n: n + 1)
    made = words.course_exercise("mine/half", solution=lambda n: n // 2, cases=[(4,)], mistakes=[[same, more]])
    assert made.mistakes == ((same, "Not halved."), (more, "Not halved."))


def _file(text: str, tables: dict[str, dict[str, object]]) -> WordsFile:
    return WordsFile(Path("mine.toml"), text, tables)
