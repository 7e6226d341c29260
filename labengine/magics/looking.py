"""%lab show, view, select, check, status, why: looking at a lab, and asking it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError

from labengine.lab import Lab
from labengine.magics.arguments import AT, request_id_of
from labengine.magics.current_lab import CurrentLab
from labengine.magics.table import argument, command, nearest
from labengine.magics.words import background_error_line, breakpoint_lines, display, request_lines, stop_lines
from labengine.session.compare.comparison import Comparison
from labengine.session.named_views import VIEW_NAMES
from labengine.session.saved.trace import Trace
from labengine.session.view_source import At

_SUBJECTS = ("block", "request", "hash", "event")


@command(AT)
def show(current: CurrentLab, at: At | None = None) -> None:
    """Show the dashboard; after %lab bug both engines."""
    if at is None:
        display(current.shown.show())
    elif current.comparison is not None:
        raise UsageError("--at is for one lab: comparison.left.show(at=...) shows a moment of one side")
    else:
        display(current.recorded.show(at=at))


@command(
    argument("names", nargs="+", metavar="NAME", offers=VIEW_NAMES, help="the views, side by side"),
    AT,
    completes=lambda given: VIEW_NAMES,
)
def view(current: CurrentLab, names: list[str], at: At | None = None) -> None:
    """Show one view alone, or several: pool, tables, map, queue, timeline ..."""
    display(current.recorded.view(*names, at=at))


@command(argument("subject", nargs="*", metavar="WHAT", offers=(*_SUBJECTS, "nothing"), help="what to choose"))
def select(current: CurrentLab, subject: Sequence[str] = ()) -> None:
    """Choose `block 3`, `request A`, `hash 0:ab12` or `event 17` in all views; `nothing` chooses nothing."""
    recorded, shown = current.recorded, current.shown
    if list(subject) in (["nothing"], ["none"]):
        shown.selection = None
    elif subject:
        shown.selection = _subject(recorded, subject)
    chosen = shown.selection
    print("nothing is chosen" if chosen is None else f"chosen: {chosen.kind} {chosen.id}")


@command(
    argument("subject", nargs="*", metavar="WHAT", offers=(*_SUBJECTS, "next-victim"), help="what to ask about"),
    argument(
        "--about",
        metavar="WHAT",
        offers=("ref_count", "lost", "free", "queue", "hit", "preempted", "waiting"),
        help="which property of it",
    ),
)
def why(current: CurrentLab, subject: Sequence[str] = (), about: str | None = None) -> Any:
    """Ask why `block 3`, `request A`, `hash 0:ab12`, `event 17` or the `next-victim` is as it is where you stand.

    Nothing named, and two engines side by side: why they part.
    """
    if not subject:
        return _why_parted(current)
    recorded = current.shown
    told = {} if about is None else {"about": about}
    if list(subject) == ["next-victim"]:
        return _answer(recorded, {"next_victim": True, **told})
    kind, id_ = _subject(current.recorded, subject)
    return _answer(recorded, {kind: id_, **told})


@command()
def check(current: CurrentLab) -> None:
    """Judge every invariant now."""
    violations = current.lab.check()
    print("\n".join(f"{v.rule}: {v.message}" for v in violations) or "all invariants hold")


@command()
def status(current: CurrentLab) -> None:
    """Tell what runs, where and why, and how the requests stand."""
    lab = current.lab
    for name, value in lab.status().items():
        print(f"{name:>10}  {value}")
    print(*request_lines(lab), sep="\n")
    for line in (*breakpoint_lines(current), *stop_lines(current)):
        print(line)
    for failure in lab.hooks.failures:
        print(f"a listener raised and was dropped: {failure.error!r}")
    print(background_error_line(lab), end="")


def _subject(recorded: Lab | Trace, subject: Sequence[str]) -> tuple[str, int | str]:
    kind, *rest = subject
    if kind not in _SUBJECTS:
        raise UsageError(f"there is no {kind!r} to point at; {nearest(kind, _SUBJECTS)}")
    if len(rest) != 1:
        example = {"request": "request A", "hash": "hash 0:ab12"}.get(kind, f"{kind} 3")
        raise UsageError(f"which {kind}? Like this: {example}")
    if kind == "hash":
        return kind, rest[0]
    if kind == "request" and recorded.timeline is not None:
        return kind, request_id_of(rest[0], recorded.timeline.state().requests)
    if not rest[0].lstrip("#").isdecimal():
        raise UsageError(f"{rest[0]!r} is no {kind}'s number")
    return kind, int(rest[0].lstrip("#"))


def _why_parted(current: CurrentLab) -> Any:
    if current.comparison is None:
        raise UsageError(
            "WHAT is it about? Like this: %lab why block 3, request A, hash 0:ab12, event 17 or next-victim"
        )
    return current.comparison.why()


def _answer(recorded: Lab | Trace | Comparison, subject: dict[str, Any]) -> Any:
    from labengine_widgets.why import WhyError

    try:
        return recorded.why(**subject)
    except WhyError as error:
        raise UsageError(str(error)) from error
