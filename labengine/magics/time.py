"""%lab back, forward, goto, rewind, fork, break: moments of the recording, and breakpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

from IPython.core.error import UsageError

from labengine.commands import argument, command
from labengine.events import EVENT_KINDS
from labengine.lab import Lab
from labengine.magics.arguments import NUM_STEPS, OF_AN_ENGINE, positive_int, step_or_crash
from labengine.magics.current_lab import CurrentLab
from labengine.magics.words import breakpoint_lines
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.cursor import PairLook
from labengine.session.history.conditions import VIOLATION
from labengine.session.history.moments import Look

_KINDS = {kind.__name__: [field.name for field in fields(kind)] for kind in EVENT_KINDS}


@command(NUM_STEPS)
def back(current: CurrentLab, num_steps: int = 1) -> None:
    """Look at the state one step (or N) before the shown one; only the views move, not the engine."""
    _print_move(current, current.shown.back(num_steps))


@command(NUM_STEPS)
def forward(current: CurrentLab, num_steps: int = 1) -> None:
    """Look at the state one step (or N) after the shown one, up to the newest."""
    _print_move(current, current.shown.forward(num_steps))


@command(
    argument("step", type=step_or_crash, metavar="STEP", help="a step number (0: before the first step) or crash"),
    argument("event", nargs="?", type=int, metavar="EVENT", help="an event inside the step, counted from 0"),
    completes=lambda words_before: ("crash",),
)
def goto(current: CurrentLab, step: int | Literal["crash"], event: int | None = None) -> None:
    """Look at the state after a step (0: before the first), after an event in it, or where a part raised (crash)."""
    if current.comparison is None:
        _print_move(current, current.recorded.goto(step, event))
    elif event is None:
        _print_move(current, current.comparison.goto(step))
    else:
        raise UsageError(
            f"the two sides have separate events: %lab goto {step} goes to the step on both, "
            f"comparison.left.goto({step}, {event}) to the event on one"
        )


@command(argument("step", type=int, metavar="STEP", help="a step number (0: before the first step)"))
def rewind(current: CurrentLab, step: int) -> None:
    """Take the engine (or both) back to its state after a step by repeating its steps; later steps stay known."""
    current.target.rewind(step)
    newest = max(lab.num_known_steps for lab in current.labs)
    further = f"; use %lab rewind {newest} to go forward again" if newest > step else ""
    subject_text = "the engine is" if current.comparison is None else "both engines are"
    print(f"{subject_text} after step {step}{further}")


@command(
    argument("step", nargs="?", type=int, metavar="STEP", help="the last step that both share"),
    argument("--name", metavar="VARIABLE", help="what to call it (fork)"),
    *OF_AN_ENGINE,
    argument("--external", offers=("host", "none"), metavar="TIER", help="a tier outside the pool"),
)
def fork(current: CurrentLab, step: int | None = None, name: str = "fork", **settings: Any) -> Lab:
    """Make a second lab on the same weights with the same history up to a step, and call it `fork`."""
    if current.comparison is not None:
        current.comparison.fork(step, **settings)
    if not name.isidentifier() or name == "lab":
        raise UsageError(f"the fork's name must be a variable name other than lab, got {name!r}")
    if settings.get("external") == "none":
        settings["external"] = None
    made = current.name(name, current.lab.fork(step, **settings))
    print(f"`{name}` is after step {made.snapshot().step}; continue it with {name}.add(...) and {name}.step().")
    other = "lab" if step is None else f"lab.fork({step})"
    print(f"labengine.compare({other}, {name}) shows both labs side by side, and {name}.close() closes the fork.")
    return made


def _fields_of(words_before: Sequence[str]) -> Sequence[str]:
    kind = "ViolationFound" if words_before[:1] == [VIOLATION] else words_before[0]
    return [f"{name}=" for name in _KINDS.get(kind, ())]


@command(
    argument("kind", nargs="?", metavar="KIND", offers=(VIOLATION, *_KINDS), help="a kind of event, or violation"),
    argument("fields", nargs="*", metavar="FIELD=VALUE", help="required values of the event's fields"),
    argument(
        "--off", nargs="?", const=0, type=positive_int, metavar="N", help="remove breakpoint N; without N, remove all"
    ),
    name="break",
    completes=_fields_of,
)
def break_(current: CurrentLab, kind: str | None = None, fields: Sequence[str] = (), off: int | None = None) -> None:
    """Have runs stop after an event: `break BlockEvicted block_id=3`, `break violation`; --off N removes one."""
    target = current.target
    if off is not None:
        _take_away(target, off)
    if kind is not None:
        wanted = dict(_value(word) for word in ([kind, *fields] if "=" in kind else fields))
        try:
            target.break_on(None if "=" in kind else kind, **wanted)
        except TypeError as error:
            raise UsageError(str(error)) from error
    print(*breakpoint_lines(current) or ["no breakpoints"], sep="\n")


def _take_away(target: Lab | Comparison, number: int) -> None:
    """Remove one breakpoint, or all if `number` is 0."""
    found = [breakpoint for breakpoint in target.breakpoints if number in (0, breakpoint.number)]
    if number and not found:
        known = ", ".join(str(breakpoint.number) for breakpoint in target.breakpoints) or "none"
        raise UsageError(f"no breakpoint {number}: the lab has {known}")
    for breakpoint in found:
        breakpoint.close()


def _value(word: str) -> tuple[str, Any]:
    name, equals, text = word.partition("=")
    if not equals or not name:
        raise UsageError(f"a condition must be FIELD=VALUE, such as block_id=3, got {word!r}")
    is_number = text.lstrip("-").isdecimal() and not name.endswith("hash")
    return name, int(text) if is_number else {"True": True, "False": False}.get(text, text)


def _print_move(current: CurrentLab, look: Look | PairLook) -> None:
    print(look)
    if current.comparison is not None:
        left, right = (snapshot.step for snapshot in current.comparison.snapshots)
        where = f"step {left}" if left == right else f"steps {left} and {right}"
        print(f"These are the recordings. Neither engine has moved: they are still after {where}.")
    elif current.has_lab:
        newest = current.lab.snapshot().step
        print(f"This is the recording. The engine has not moved: it is still after step {newest}.")
