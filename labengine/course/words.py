"""What the course's exercises say: task, hints, mistakes and reasons, in a TOML file for each notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.course.base import Exercise, Mistake
from labengine.course.exercise import EXERCISES, exercise
from labengine.words_file import WordsFile, words_file

_KNOWN = ("task", "hints", "mistakes", "reason", "because")


def course_exercise(name: str, *, mistakes: Sequence[Any] = (), **code: Any) -> Exercise:
    """Return an exercise of the course, made of its code here and the words in its notebook's file.

    mistakes: common wrong answers, in the order of their sentences in the file; several answers with the same sentence
    stand in a list. code: keywords of labengine.exercise(). Raises ConfigError, with file and line, for words that do
    not fit.
    """
    topic, _, short = name.partition("/")
    words = words_of(topic)
    said = dict(words.tables.get(short, {}))
    words.refuse_unknown(said, _KNOWN, "text of an exercise")
    said["mistakes"] = _paired(words, short, mistakes, said.get("mistakes", []))
    return exercise(name, **code, **said)


def words_of(topic: str) -> WordsFile:
    """Return the words of a notebook's exercises: a table for the second half of each name."""
    path = Path(__file__).parent / "exercises" / f"{EXERCISES[topic]}.toml"
    if (words := words_file(path)) is None:
        raise ConfigError(f"{path.name} is missing beside the code of its exercises")
    return words


def _paired(words: WordsFile, short: str, mistakes: Sequence[Any], sentences: Sequence[str]) -> list[Mistake]:
    if len(mistakes) != len(sentences):
        words.refuse(short, f"{short!r} has {len(mistakes)} mistakes in its code, and {len(sentences)} here")
    pairs = zip(mistakes, sentences, strict=True)
    return [(one, says) for given, says in pairs for one in (given if isinstance(given, list) else [given])]
