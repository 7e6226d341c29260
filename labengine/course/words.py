"""The course's exercises: their texts, in a TOML file for each notebook, and the code that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.course.base import Exercise, Mistake
from labengine.course.predict_exercise import Instance
from labengine.words_file import WordsFile, words_file

NOTEBOOKS = {
    "why-blocks": ("why_blocks",),
    "first-light": ("first_light",),
    "paged-attention": ("paged_attention",),
    "continuous-batching": ("continuous_batching", "batching_guesses", "preemption", "preemption_guesses"),
    "prefix-caching": ("prefix_caching", "prefix_guesses"),
    "late-merge": ("late_merge",),
    "off-by-one": ("off_by_one",),
    "two-tables": ("two_tables",),
    "two-phases": ("two_phases",),
    "rounding": ("rounding",),
    "reading-a-run": ("reading_a_run",),
    "hunt": ("hunt",),
    "your-policy": ("your_own_policy",),
    "sharing": ("sharing",),
    "guessing": ("guessing",),
    "states": ("states",),
    "trees": ("trees",),
}
"""Modules in labengine.course.exercises, by the first half of exercises' names. The texts are beside the first."""

_KNOWN = ("task", "hints", "mistakes", "reason", "because")
_BLOCK_SIZE = 4
"""Block size of the course's labs, unless an exercise sets it or its groups."""
_codes: dict[str, dict[str, Any]] = {}


def course_exercise(name: str, **code: Any) -> None:
    """Register the code of an exercise: keywords of labengine.exercise(). Its texts are in the notebook's TOML file.

    mistakes: wrong answers, in the order of their sentences; a list groups several with the same sentence.
    play: an Instance, which also has the task, or a workload. panels: dashboard views the notebook has introduced.
    """
    _codes[name] = code


def exercise_names() -> list[str]:
    """Return the names of the course's exercises, notebook by notebook, in the order of their texts."""
    return [f"{topic}/{short}" for topic in NOTEBOOKS for short in words_of(topic).tables]


def made_of_words(name: str, make: Callable[..., Exercise]) -> Exercise | None:
    """Return an exercise of the course, or None for an unknown name. make: labengine.exercise().

    Raises ConfigError, with file and line, for texts that do not fit.
    """
    topic, _, short = name.partition("/")
    if topic not in NOTEBOOKS or short not in (words := words_of(topic)).tables:
        return None
    for module in NOTEBOOKS[topic]:
        import_module(f"labengine.course.exercises.{module}")
    said = dict(words.tables[short])
    words.refuse_unknown(said, _KNOWN, "text of an exercise")
    code = dict(_codes.get(name) or words.refuse(short, f"{short!r} has no code"))
    said["mistakes"] = _paired(words, short, code.pop("mistakes", ()), said.get("mistakes", []))
    panels = code.pop("panels", ())
    if isinstance(code.get("play"), Instance):
        code.update(task=code["play"].task, play=code["play"].play)
    if "groups" not in code:
        code.setdefault("block_size", _BLOCK_SIZE)
    exercise = make(name, **code, **said)
    exercise.panels = panels
    return exercise


def words_of(topic: str) -> WordsFile:
    """Return the texts of a notebook's exercises: a table for the second half of each name."""
    path = Path(__file__).parent / "exercises" / f"{NOTEBOOKS[topic][0]}.toml"
    if (words := words_file(path)) is None:
        raise ConfigError(f"{path.name} is missing: it belongs next to the code of its exercises")
    return words


def _paired(words: WordsFile, short: str, mistakes: Sequence[Any], sentences: Sequence[str]) -> list[Mistake]:
    if len(mistakes) != len(sentences):
        words.refuse(short, f"{short!r} has {len(mistakes)} mistakes in its code but {len(sentences)} here")
    pairs = zip(mistakes, sentences, strict=True)
    return [(one, says) for given, says in pairs for one in (given if isinstance(given, list) else [given])]
