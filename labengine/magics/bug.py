"""%lab bugs, bug and exercise: upstream reports, a report run broken beside fixed, and the course's exercises."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.core.error import UsageError

from labengine.commands import argument, command
from labengine.course.exercise import known_exercise
from labengine.course.progress import progress
from labengine.course.words import NOTEBOOKS, exercise_names
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import acting_on, display
from labengine.scenarios import SCENARIOS, bugs_named, engines, listing
from labengine.scenarios import bug as bug_of
from labengine.scenarios.bug_list import BugList
from labengine.scenarios.kinds import KINDS
from labengine.scenarios.scenario import Scenario


@command(
    argument(
        "words",
        nargs="*",
        metavar="ENGINE|KIND",
        offers=(*engines(), *KINDS),
        help="list only bugs of this engine or kind",
    ),
)
def bugs(current: CurrentLab, words: Sequence[str] = ()) -> BugList:
    """List the upstream bugs, with the checks that see them; `vllm`, `window` or `vllm window` filters the list."""
    return bugs_named(words)


@command(
    argument("id", nargs="?", metavar="ID", offers=tuple(SCENARIOS), help="the report"),
    argument("--column", metavar="NAME", help="open only this engine"),
    argument("--model", offers=("simulated", "smollm2"), metavar="NAME", help="run it on these weights"),
)
def bug(current: CurrentLab, id: str | None = None, column: str | None = None, model: str = "simulated") -> None:
    """Judge an upstream bug report, and open broken and fixed side by side; --column opens one engine alone."""
    if id is None:
        print(listing())
        return
    scenario = bug_of(id)
    if column is None:
        _open_both(current, scenario, model)
    else:
        _open_one(current, scenario, column, model)


def _open_both(current: CurrentLab, scenario: Scenario, model: str) -> None:
    comparison = current.open("comparison", scenario.compare(model))
    display(comparison.show())
    print(acting_on("comparison", "holds both engines", current))
    display(scenario.verdict())
    if model != "simulated" and (corruption := scenario.corruption(model)) is not None:
        display(corruption)
    for number, sentence in enumerate(scenario.sentences, 1):
        print(f"{number}. {sentence}")
    if comparison.has_follow_up:
        print(
            f"comparison.step() takes a step of both; comparison.follow_up() answers: {comparison.follow_up_question}"
        )


def _open_one(current: CurrentLab, scenario: Scenario, column: str, model: str) -> None:
    if column not in [known.name for known in scenario.columns]:
        raise UsageError(f"no column {column!r}: the scenario has {', '.join(repr(c.name) for c in scenario.columns)}")
    lab = current.open("bug_lab", scenario.played(column, model))
    display(scenario.show(lab))
    print(acting_on("bug_lab", f"is the engine {column}", current))
    display(scenario.verdict())


VARIABLE = "exercise"


@command(argument("name", nargs="?", metavar="NAME", offers=tuple(NOTEBOOKS), help="such as why-blocks/slot"))
def exercise(current: CurrentLab, name: str | None = None) -> None:
    """Show an exercise of the course, as the variable `exercise`; without a name, the list and your progress."""
    if name is None or name in NOTEBOOKS:
        print(*(one for one in exercise_names() if one.startswith(f"{name or ''}")), sep="\n")
        display(progress())
        return
    found = known_exercise(name)
    current.store(VARIABLE, found)
    display(found)
