"""%lab exercise: an exercise of the course, and the reader's progress."""

from __future__ import annotations

from labengine.commands import argument, command
from labengine.course.exercise import known_exercise
from labengine.course.progress import progress
from labengine.course.words import NOTEBOOKS, exercise_names
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import display

VARIABLE = "exercise"


@command(argument("name", nargs="?", metavar="NAME", offers=tuple(NOTEBOOKS), help="why-blocks/slot, say"))
def exercise(current: CurrentLab, name: str | None = None) -> None:
    """Show an exercise of the course, as the variable `exercise`; without a name, the list and your progress."""
    if name is None or name in NOTEBOOKS:
        print(*(one for one in exercise_names() if one.startswith(f"{name or ''}")), sep="\n")
        display(progress())
        return
    found = known_exercise(name)
    current.store(VARIABLE, found)
    display(found)
