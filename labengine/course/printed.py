"""A printable page of all the course's exercises, with hints and solutions."""

from __future__ import annotations

from html import escape
from pathlib import Path

from labengine.course.base import Exercise
from labengine.course.check_result import marked
from labengine.course.exercise import known_exercise
from labengine.course.predict_exercise import PredictExercise
from labengine.course.words import NOTEBOOKS, exercise_names
from labengine.record.files.file_access import replace_file
from labengine.record.wording import counted

_STYLE = """
body { font: 11pt/1.4 system-ui, sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em; }
body { color: #222; background: #fff; }
h2 { border-bottom: 1px solid #999; margin-top: 2em; break-before: page; }
article { break-inside: avoid; margin: 1.2em 0; }
pre { background: #f3f3f3; padding: .6em; white-space: pre-wrap; }
code { font-size: 95%; }
li { margin: .2em 0; }
figure { margin: .6em 0; }
figure svg { max-width: 100%; height: auto; }
"""


def solutions_page() -> str:
    """Return the page as HTML: the task of each exercise, how to answer, hints, mistakes and the solution."""
    names = exercise_names()
    topics = [(topic, [name for name in names if name.startswith(f"{topic}/")]) for topic in NOTEBOOKS]
    body = "".join(_topic(topic, of_topic) for topic, of_topic in topics if of_topic)
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Exercises and solutions</title>'
        f"<style>{_STYLE}</style><h1>Exercises and solutions</h1>"
        f"<p>{counted(len(names), 'exercise')} of labengine's course. For lecturers: with the answers.</p>{body}"
    )


def write_solutions(path: Path) -> str:
    """Write the page into a file; return a sentence. Raises ConfigError if the file cannot be written."""
    replace_file(path, solutions_page().encode())
    return f"{counted(len(exercise_names()), 'exercise')} with solutions in {path}"


def _topic(topic: str, names: list[str]) -> str:
    title = topic.replace("-", " ").capitalize()
    return f"<h2>{escape(title)}</h2>" + "".join(map(_article, map(known_exercise, names)))


def _article(exercise: Exercise) -> str:
    hints = "".join(f"<li>{marked(hint)}</li>" for hint in exercise.text.hints)
    mistakes = "".join(f"<li>{marked(hint)}</li>" for _, hint in exercise.mistakes)
    return (
        f"<article><h3>{escape(exercise.kind)}: {escape(exercise.name)}</h3><p>{marked(exercise.text.task)}</p>"
        f"<p>{marked(exercise.how_to_answer)}</p><p>Hints:</p><ol>{hints}</ol>"
        f"<p>Hints for common mistakes:</p><ul>{mistakes}</ul>"
        f"<p>Solution:</p><pre>{escape(exercise.solution_text())}</pre>{_figure(exercise)}</article>"
    )


def _figure(exercise: Exercise) -> str:
    picture = exercise.picture()
    if not picture:
        return ""
    is_before = isinstance(exercise, PredictExercise)
    caption = "Before the step that is asked about:" if is_before else "Right after the first wrong event:"
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"
