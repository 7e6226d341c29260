"""%lab find: the shortest workload on which parts go wrong."""

from __future__ import annotations

import keyword

from IPython.core.error import UsageError

from labengine.commands import SEARCH_SECONDS, SEARCH_SEED, argument, command
from labengine.core.editions import EDITIONS
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import find as find_workload
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import acting_on, display

VARIABLE = "counterexample"


@command(
    argument("parts", nargs="?", metavar="PARTS", help="a variable: a class or Parts; or an edition; else the lab's"),
    argument("--against", offers=tuple(EDITIONS), metavar="EDITION", help="what costs and decisions are held against"),
    SEARCH_SECONDS,
    SEARCH_SEED,
)
def find(
    current: CurrentLab,
    parts: str | None = None,
    against: str = "labengine",
    seconds: float = 60.0,
    seed: int = 0,
) -> None:
    """Search for the shortest workload on which parts go wrong, and open it beside the edition that does not."""
    found = find_workload(_wanted(current, parts), against, seconds=seconds, seed=seed)
    display(found)
    if not isinstance(found, Counterexample):
        return
    current.store(VARIABLE, found)
    comparison = current.open("comparison", found.compare())
    display(comparison.show())
    print(acting_on("comparison", "holds both engines", current))
    print(f"print({VARIABLE}.to_test()) is a test for pytest; {VARIABLE}.to_code() a script;", end=" ")
    print(f"{VARIABLE}.to_notebook('found.ipynb') writes a notebook")


def _wanted(current: CurrentLab, parts: str | None) -> object:
    """Return the object of that name in the notebook, an edition's name, or the lab's parts."""
    if parts is None:
        return current.lab.parts
    if parts in EDITIONS:
        return parts
    if not parts.isidentifier() or keyword.iskeyword(parts) or parts not in current.names:
        raise UsageError(f"there is no variable {parts!r}: define the class in a cell, or name an edition")
    return current.names[parts]
