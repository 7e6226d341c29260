"""labengine.exercise(): an exercise of the course by name, or a lecturer's own from a few values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from labengine.config import ConfigError, checked_call, checked_int, checked_text, shown
from labengine.core.parts import Parts
from labengine.course.base import Exercise, ExerciseText, Mistake
from labengine.course.first_wrong_exercise import FirstWrongExercise, Found, first_violation
from labengine.course.function_exercise import Case, FunctionExercise
from labengine.course.override_exercise import OverrideExercise
from labengine.course.policy_exercise import PolicyExercise, Score, UndoneWorkload
from labengine.course.predict_exercise import Another, PredictExercise, RevealedStep, Truth
from labengine.course.trial import LabMaker, Workload, trial_of
from labengine.course.words import exercise_names, made_of_words
from labengine.lab import Lab
from labengine.scenarios import bug
from labengine.session.question import QuestionKind

_KINDS = (
    "cases= (a function), workloads= (an override), score= and goal= (a policy), broken= (an event), truth= (a step)"
)


def exercise(
    name: str,
    task: str | None = None,
    *,
    solution: Any = None,
    cases: Sequence[Case] | None = None,
    num_shown: int = 3,
    workloads: Sequence[Workload] | None = None,
    accepts: Callable[[Lab], str | None] | None = None,
    score: str | Score | None = None,
    goal: float | None = None,
    undone: UndoneWorkload | None = None,
    broken: str | Parts | type | None = None,
    first: Callable[[Lab], int] | None = None,
    because: str = "",
    play: Workload | None = None,
    truth: Truth | None = None,
    about: QuestionKind = "block",
    rounds: int = 1,
    reason: str = "",
    another: Another | None = None,
    until: Callable[[RevealedStep], bool] | None = None,
    views: Sequence[str] = (),
    num_lines: int = 0,
    hints: Sequence[str] = (),
    mistakes: Sequence[Mistake] = (),
    **settings: Any,
) -> Exercise:
    """Return a self-checking exercise: one of the course by its name alone, or a new one.

    task: the task, in a few sentences. The keywords decide the kind of exercise:
    * Fill in a function: solution, and cases, a list of argument tuples; the first num_shown are shown.
    * Fill in an override: solution (a class, or a function named like a seam), and workloads, functions that add
      requests to a lab and take steps. accepts(lab) judges a played lab instead of comparing it with the solution's
      events: it returns a sentence on the fault.
    * Make it better: solution and workloads, with score ("tokens computed" ..., or a function of a lab) and goal.
      undone(lab, interrupt): a workload that calls interrupt(lab) to begin a step and undo it; an answer must continue
      as if the step had never begun.
    * Find the first wrong event: broken, an upstream bug's id, or parts or an override, which `play` runs. first(lab)
      returns the event's number; the default is the first event that breaks a rule or raises. because: one or two
      sentences on the fault, shown with the right answer.
    * Predict, then reveal: play(lab) goes to the moment before a step, and truth(step) returns the answer of that step;
      about: "block", "request", "hash" or "number"; rounds: number of steps asked about. until(steps): true once the
      answer is known, for an answer that takes several steps. another(random) draws a new instance. reason: why the
      right answer is right. views: the views that `show` shows instead of the dashboard.

    hints: shown one at a time. mistakes: pairs of a common wrong answer and the matching hint. num_lines: approximate
    lines of the solution. settings: keywords of Lab, for simulated labs. Raises ConfigError for impossible values.
    """
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"name must be an exercise's name, such as 'late-merge/keep-first', got {shown(name)}")
    if task is None:
        return known_exercise(name)
    text = ExerciseText(name, _checked_task(task), _checked_hints(hints), checked_int("num_lines", num_lines, 0))
    pairs = _checked_mistakes(mistakes)
    if cases is not None:
        return FunctionExercise(text, solution, pairs, cases, checked_int("num_shown", num_shown, 0))
    if broken is not None:
        return _first_wrong(text, pairs, broken, play, first, checked_text("because", because), settings)
    maker = LabMaker.of(settings)
    if truth is not None:
        if play is None:
            raise ConfigError("play(lab) is missing: it must add requests and go to the moment before the step")
        num_rounds = checked_int("rounds", rounds, 1)
        more: dict[str, Any] = {"reason": reason, "another": another, "until": until, "views": views}
        return PredictExercise(text, play, truth, about, maker, pairs, num_rounds, **more)
    if workloads is None:
        raise ConfigError(f"an exercise must have one of {_KINDS}")
    if solution is None:
        raise ConfigError("solution is missing: give a class that replaces a part, or a function named after a seam")
    if score is not None:
        if goal is None:
            raise ConfigError("goal is missing: give the score to reach")
        return PolicyExercise(text, solution, pairs, workloads, maker, score=score, goal=goal, undone=undone)
    return OverrideExercise(text, solution, pairs, workloads, maker, accepts=accepts)


def known_exercise(name: str) -> Exercise:
    """Return a new copy of an exercise of the course. Raises ConfigError, naming the nearest match."""
    made = made_of_words(name, exercise)
    if made is not None:
        return made
    names = exercise_names()
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    raise ConfigError(f"no exercise {shown(name)} in the course; {hint} A new exercise also needs a task.")


def _first_wrong(
    text: ExerciseText,
    mistakes: Sequence[Mistake],
    broken: str | Parts | type,
    play: Workload | None,
    first: Callable[[Lab], int] | None,
    because: str,
    settings: Mapping[str, Any],
) -> FirstWrongExercise:
    find: Callable[[Lab], Found | None] = first_violation
    if isinstance(broken, str):
        scenario = bug(broken)

        def find(lab: Lab) -> Found | None:
            found = scenario.first_wrong(lab)
            return None if found is None else (found.moment, found.sentence)

        return FirstWrongExercise(text, lambda check: scenario.broken(), find, mistakes, because)
    if play is None:
        raise ConfigError("play(lab) is missing: it must add requests to the broken lab and take steps")
    checked_call("play", play, "lab")
    maker = LabMaker.of(settings)
    parts = replace(maker.with_override(broken), name=f"{maker.parts.name}, broken")
    if first is not None:
        checked_call("first", first, "lab")

        def find(lab: Lab) -> Found | None:
            return first(lab), ""

    def make(check: bool) -> Lab:
        lab = maker.lab(parts, check=check)
        trial_of(lab, play)
        return lab

    return FirstWrongExercise(text, make, find, mistakes, because)


def _checked_task(task: object) -> str:
    if not isinstance(task, str) or not task.strip():
        raise ConfigError(f"task must be a string of a few sentences, got {shown(task)}")
    return " ".join(task.split())


def _checked_hints(hints: object) -> tuple[str, ...]:
    if isinstance(hints, str) or not isinstance(hints, Sequence) or not all(isinstance(one, str) for one in hints):
        raise ConfigError(f"hints must be a list of sentences, got {shown(hints)}")
    return tuple(hints)


def _checked_mistakes(mistakes: object) -> tuple[Mistake, ...]:
    pairs = tuple(mistakes) if isinstance(mistakes, Sequence) and not isinstance(mistakes, str) else (None,)
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], str):
            raise ConfigError(f"mistakes must be a list of pairs, each a wrong answer and its hint, got {shown(pair)}")
    return pairs
