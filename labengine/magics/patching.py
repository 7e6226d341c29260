"""%lab seams, %lab seam and %%lab patch: a method edited in a cell, and the same workload run on it.

It is a method of labengine's core, or of a driven engine.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from pathlib import Path
from textwrap import shorten

from IPython.core.error import UsageError

from labengine.commands import argument, command
from labengine.core.editions import LABENGINE
from labengine.core.part_methods import class_name
from labengine.core.parts import Parts
from labengine.driven.driven import Patch
from labengine.driven.model import DrivenModel
from labengine.lab import Lab
from labengine.magics.current_lab import CurrentLab
from labengine.magics.driven_methods import cell_of, engine_of, method_lines, patches_of
from labengine.magics.words import acting_on, display, violation_line
from labengine.record.wording import counted
from labengine.session.compare.comparison import Comparison
from labengine.session.overrides_in_use import override_notes
from labengine.session.patch.cell import cell_text, parts_from_cell
from labengine.session.patch.rerun_beside import ROLES
from labengine.session.patch.seams import GROUP_FIELDS, PartSeam, find_seam, seams_in_use
from labengine.session.violation_warnings import ViolationWarning

_ALL_KINDS = tuple(GROUP_FIELDS)
_NAMES = tuple(map(str, seams_in_use(LABENGINE, _ALL_KINDS)))
_ROOT = Path(inspect.getfile(Lab)).parent.parent
_WIDTH = 76
"""Maximum length of a seam's sentence in the list."""


@command(argument("word", nargs="?", metavar="WORD", help="list only seams with this word in their name: pool, touch"))
def seams(current: CurrentLab, word: str = "") -> None:
    """List the seams, the methods that %%lab patch can replace, each with its purpose and its place.

    Of a driven engine, its own methods that decide events; any other can be replaced, too.
    """
    if (engine := _engine(current)) is not None:
        print(*method_lines(current.lab, engine, word), sep="\n")
        return
    found = [seam for seam in _seams(current) if word.lower() in str(seam).lower()]
    if not found:
        raise UsageError(f"no seam has {word!r} in its name; %lab seams lists them all")
    width = max(len(str(seam)) for seam in found)
    overrides = current.lab.session.inspection.overrides if current.has_lab else {}
    for seam in found:
        use = ", not called so far" if overrides.get(str(seam), False) is None else ""
        print(f"{seam!s:<{width}}  {shorten(seam.method.reason, _WIDTH, placeholder=' ...')}  [{_place(seam)}{use}]")


@command(argument("name", metavar="SEAM", offers=_NAMES, help="touch, or BlockPool.touch"))
def seam(current: CurrentLab, name: str) -> None:
    """Open a seam's source in a new cell, below %%lab patch, ready to edit."""
    if (engine := _engine(current)) is not None:
        cell, place = cell_of(current.lab, engine, name)
        shown = cell.partition("\n")[0].removeprefix("%%lab patch ")
    else:
        found = find_seam(name, *_parts_and_kinds(current))
        cell, shown, place = f"%%lab patch {found}\n{cell_text(found)}\n", str(found), _place(found)
    current.open_cell(cell)
    print(f"{shown} is in the cell below, from {place}: edit it and run the cell")


@command(
    argument("name", metavar="SEAM", offers=_NAMES, help="touch, or BlockPool.touch"),
    argument("--on-top", action="store_true", default=None, help="keep the patch that the comparison shows"),
    call="%%lab patch",
)
def patch(current: CurrentLab, name: str, on_top: bool = False, cell: str | None = None) -> None:
    """Run the lab's workload again with the method below this line instead of a seam, beside the original.

    Both sides are new labs; `lab` does not change. Every patch begins with the lab's own parts, so that an edited cell
    can be run again; --on-top adds it to the shown patch. The method knows the names of its module and of the
    notebook.
    """
    lab = current.lab
    if cell is None:
        raise UsageError(f"write the method below %%lab patch {name}, in the same cell; %lab seam {name} opens one")
    shown = _shown_patch(current) if on_top else None
    engine = engine_of(lab)
    if engine is not None:
        patches = patches_of(lab, name, cell, shown)
        comparison = current.open("comparison", _rerun(lab, patches))
        outcome = _driven_outcome(comparison, patches[-1], engine)
    else:
        base = lab.parts if shown is None else shown.parts
        found = find_seam(name, base, _kinds(lab))
        parts = parts_from_cell(found, cell, base, current.names)
        comparison = current.open("comparison", _rerun(lab, parts))
        outcome = _seam_outcome(comparison, found)
    print(*outcome, sep="\n")
    display(comparison.show())
    print(acting_on("comparison", "holds both engines", current))


def _rerun(lab: Lab, override: Parts | tuple[Patch, ...]) -> Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ViolationWarning)  # _outcome prints the same
        return lab.rerun(override)


def _engine(current: CurrentLab) -> DrivenModel | None:
    return engine_of(current.lab) if current.has_lab else None


def _shown_patch(current: CurrentLab) -> Lab:
    comparison = current.comparison
    if comparison is None or comparison.roles != ROLES or not isinstance(comparison.right, Lab):
        raise UsageError("--on-top adds to the patch that is shown, but none is: omit it")
    return comparison.right


def _parts_and_kinds(current: CurrentLab) -> tuple[Parts, tuple[str, ...]]:
    return (current.lab.parts, _kinds(current.lab)) if current.has_lab else (LABENGINE, _ALL_KINDS)


def _kinds(lab: Lab) -> tuple[str, ...]:
    return tuple({group.kind for group in lab.config.groups})


def _seams(current: CurrentLab) -> list[PartSeam]:
    return seams_in_use(*_parts_and_kinds(current))


def _place(seam: PartSeam) -> str:
    """Return file and line of a seam's definition: "labengine/core/block_pool.py:64"."""
    if seam.owner.__module__ == "__main__":
        return "this notebook"
    path = Path(getattr(sys.modules.get(seam.owner.__module__), "__file__", None) or seam.owner.__module__)
    shown = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path.name
    return f"{shown}:{seam.method.line}"


# -- the outcome -------------------------------------------------------------------------------------------------------


def _seam_outcome(comparison: Comparison, seam: PartSeam) -> list[str]:
    right = comparison.right
    assert isinstance(right, Lab)
    classes = [f"{getattr(right.parts, field).__name__}.{seam.name}" for field in seam.fields]
    lines = _outcome(comparison, seam.name, f"{' and '.join(classes)} instead of {seam}")
    return [*lines, str(comparison.first_difference() or _no_difference(right, seam))]


def _driven_outcome(comparison: Comparison, patch: Patch, engine: DrivenModel) -> list[str]:
    name = patch.method.rpartition(".")[2]
    lines = _outcome(comparison, name, f"your {patch.method} instead of the one of {engine.name}")
    same = f"No difference, event by event. Whether {name} was called is unknown."
    return [*lines, str(comparison.first_difference() or same)]


def _outcome(comparison: Comparison, name: str, replaced: str) -> list[str]:
    """Return the lines below the comparison: the workload, and each side's crash and violations."""
    left, right = (side for side in comparison.sides if isinstance(side, Lab))
    requests, steps = counted(len(left.snapshot().requests), "request"), counted(left.snapshot().step, "step")
    lines = [f"{requests} and {steps}, run again with {replaced}."]
    for variable, role, lab in (("left", "as it was", left), ("right", f"with your {name}", right)):
        if lab.crash is not None:
            lines.append(f"{role}: {lab.crash}; %lab goto crash shows the moment")
        if lab.violations:
            lines.append(f"{role}: {violation_line(lab.violations, f'comparison.{variable}.why(event={{}})')}")
    if left.violations and not right.violations:
        lines.append(f"with your {name}: no violation")
    if _is_idle(left) and not _is_idle(right) and right.crash is None:
        steps = counted(right.snapshot().step, "step")
        lines.append(f"with your {name}: after {steps} some requests are not finished; %lab run continues")
    return lines


def _is_idle(lab: Lab) -> bool:
    return lab.session.stepper.engine.scheduler.is_idle


def _no_difference(patched: Lab, seam: PartSeam) -> str:
    names = {f"{class_name(getattr(patched.parts, field))}.{seam.name}" for field in seam.fields}
    known = patched.session.inspection.overrides
    if notes := override_notes({name: found for name, found in known.items() if name in names}):
        return f"No difference: {' '.join(notes)}"
    if patched.session.watch is None:
        return f"No difference, event by event. Without checks, whether {seam.name} was called is unknown."
    return "No difference: on this workload both make the same decisions, event by event."
