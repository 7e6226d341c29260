"""The course's exercises: their words, in a TOML file for each notebook, and the code that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from labengine.config import ConfigError
from labengine.course.base import Exercise, Mistake
from labengine.words_file import WordsFile, words_file

NOTEBOOKS = {
    "why-blocks": ("why_blocks",),
    "first-light": ("first_light", "first_light_guesses"),
    "paged-attention": ("paged_attention",),
    "continuous-batching": ("continuous_batching", "batching_guesses", "preemption", "preemption_guesses"),
    "prefix-caching": ("prefix_caching", "prefix_guesses"),
    "late-merge": ("late_merge", "ref_counts"),
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
}
"""By the first half of exercises' names, modules in labengine.course.exercises; the words stand beside the first."""

Make = Callable[..., Exercise]
"""Makes an exercise from its code, keywords of labengine.exercise(); mistakes are without their sentences."""
Code = Callable[[Make], Exercise]

_KNOWN = ("task", "hints", "mistakes", "reason", "because")
_codes: dict[str, Code] = {}


def course_exercise(name: str) -> Callable[[Code], Code]:
    """Have a function be the code of this exercise: it returns what it makes with the function that it is given."""

    def keep(code: Code) -> Code:
        _codes[name] = code
        return code

    return keep


def exercise_names() -> list[str]:
    """Return the names of the course's exercises, notebook by notebook, in the order of their words."""
    return [f"{topic}/{short}" for topic in NOTEBOOKS for short in words_of(topic).tables]


def made_of_words(name: str, make: Make) -> Exercise | None:
    """Return an exercise of the course, None for a name that it lacks. make: labengine.exercise().

    Several mistakes with the same sentence stand in a list in the code. Raises ConfigError, with file and line, for
    words that do not fit.
    """
    topic, _, short = name.partition("/")
    if topic not in NOTEBOOKS or short not in (words := words_of(topic)).tables:
        return None
    for module in NOTEBOOKS[topic]:
        import_module(f"labengine.course.exercises.{module}")
    said = dict(words.tables[short])
    words.refuse_unknown(said, _KNOWN, "text of an exercise")

    def with_words(*, mistakes: Sequence[Any] = (), **code: Any) -> Exercise:
        said["mistakes"] = _paired(words, short, mistakes, said.get("mistakes", []))
        return make(name, **code, **said)

    code = _codes.get(name) or words.refuse(short, f"{short!r} has no code")
    return code(with_words)


def words_of(topic: str) -> WordsFile:
    """Return the words of a notebook's exercises: a table for the second half of each name."""
    path = Path(__file__).parent / "exercises" / f"{NOTEBOOKS[topic][0]}.toml"
    if (words := words_file(path)) is None:
        raise ConfigError(f"{path.name} is missing beside the code of its exercises")
    return words


def _paired(words: WordsFile, short: str, mistakes: Sequence[Any], sentences: Sequence[str]) -> list[Mistake]:
    if len(mistakes) != len(sentences):
        words.refuse(short, f"{short!r} has {len(mistakes)} mistakes in its code, and {len(sentences)} here")
    pairs = zip(mistakes, sentences, strict=True)
    return [(one, says) for given, says in pairs for one in (given if isinstance(given, list) else [given])]
