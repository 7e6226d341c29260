"""%lab show, view, select, check, status, why, save, open, attach: looking at a lab or a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from labengine.commands import PIECE, RANK, REPLAY, TOKENIZER, argument, command
from labengine.lab import Lab
from labengine.magics.arguments import AT, request_id_of
from labengine.magics.current_lab import CurrentLab
from labengine.magics.table import nearest
from labengine.magics.words import background_error_line, breakpoint_lines, display, request_lines, stop_lines
from labengine.session.compare.comparison import Comparison
from labengine.session.named_views import VIEW_NAMES
from labengine.session.saved import trace as traces
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.view_source import At
from labengine.vllm.cache_events.attach import kv_events
from labengine.vllm.cache_events.places import is_kv_place
from labengine.vllm.stream import attach as streams
from labengine.vllm.stream.ranks import attach_ranks

_SUBJECTS = ("block", "request", "hash", "node", "event")


@command(AT)
def show(current: CurrentLab, at: At | None = None) -> None:
    """Show the dashboard; after %lab bug, of both engines."""
    if at is None:
        display(current.shown.show())
    elif current.comparison is not None:
        raise UsageError("--at is for a single lab: use comparison.left.show(at=...) to show a moment of one side")
    else:
        display(current.recorded.show(at=at))


@command(
    argument("names", nargs="+", metavar="NAME", offers=VIEW_NAMES, help="the views, side by side"),
    AT,
    completes=lambda words_before: VIEW_NAMES,
)
def view(current: CurrentLab, names: list[str], at: At | None = None) -> None:
    """Show one view alone, or several: pool, tables, map, queue, timeline ..."""
    display(current.recorded.view(*names, at=at))


@command(argument("subject", nargs="*", metavar="WHAT", offers=(*_SUBJECTS, "nothing"), help="the object to select"))
def select(current: CurrentLab, subject: Sequence[str] = ()) -> None:
    """Select `block 3`, `request A`, `hash 0:ab12`, `node 4` or `event 17` in all views; `nothing` clears it."""
    recorded, shown = current.recorded, current.shown
    if list(subject) in (["nothing"], ["none"]):
        shown.selection = None
    elif subject:
        shown.selection = _subject(recorded, subject)
    selection = shown.selection
    print("nothing is selected" if selection is None else f"selected: {selection.kind} {selection.id}")


@command(
    argument("subject", nargs="*", metavar="WHAT", offers=(*_SUBJECTS, "next-victim"), help="what to ask about"),
    argument(
        "--about",
        metavar="WHAT",
        offers=(
            "ref_count",
            "lost",
            "free",
            "queue",
            "hit",
            "preempted",
            "waiting",
            "finished",
            "token",
            "drafts",
            "beam",
        ),
        help="the property to ask about",
    ),
)
def why(current: CurrentLab, subject: Sequence[str] = (), about: str | None = None) -> Any:
    """Ask why `block 3`, `request A`, `hash 0:ab12`, `node 4`, `event 17` or `next-victim` is as it is shown.

    Without a subject, and with two engines side by side, ask why they differ.
    """
    if not subject:
        return _why_parted(current)
    recorded = current.shown
    options = {} if about is None else {"about": about}
    if list(subject) == ["next-victim"]:
        return _answer(recorded, {"next_victim": True, **options})
    kind, id_ = _subject(current.recorded, subject)
    return _answer(recorded, {kind: id_, **options})


@command()
def check(current: CurrentLab) -> None:
    """Judge every invariant now."""
    violations = current.lab.check()
    print("\n".join(f"{v.rule}: {v.message}" for v in violations) or "all invariants hold")


@command()
def status(current: CurrentLab) -> None:
    """Show what runs, where and why, and the status of the requests."""
    lab = current.lab
    for name, value in lab.status().items():
        print(f"{name:>10}  {value}")
    print(*request_lines(lab), sep="\n")
    for line in (*breakpoint_lines(current), *stop_lines(current)):
        print(line)
    for failure in lab.hooks.failures:
        print(f"a listener raised an exception and was removed: {failure.error!r}")
    print(background_error_line(lab), end="")


@command(argument("path", metavar="FILE", help="a path; FILE.html makes a page"))
def save(current: CurrentLab, path: str) -> None:
    """Save the recording to FILE: every view of it opens again anywhere, without a model. FILE.html is a page."""
    target = Path(path)
    if target.suffix == ".html":
        current.recorded.export_html(target)
        print(f"{path}: a page to scrub through in any browser, without network or Python")
        return
    current.recorded.save(target)
    print(f"{path}, {target.stat().st_size / 1024:,.0f} KiB: %lab open {path}, or labengine.open({path!r})")


@command(
    argument("path", metavar="FILE", help="a path; FILE.html makes a page"),
    argument("--name", metavar="VARIABLE", help="what to call it (trace)"),
)
def open(current: CurrentLab, path: str, name: str = "trace") -> None:
    """Open a file that `save` wrote, call it `trace`, and show it; it contains no engine to step."""
    current.look_at(name, trace := traces.open(path))
    print(f"{name}: {trace.summary()}")
    display(trace.show())


@command(
    argument(
        "place",
        metavar="PLACE",
        help="unix:DIR, tcp:127.0.0.1:PORT, kv:tcp://HOST:PORT, a .labstream or .kvevents file, or a folder",
    ),
    argument("--name", metavar="VARIABLE", help="what to call it (trace)"),
    PIECE,
    RANK,
    argument("--ranks", action="store_true", help="show all engines running there, side by side"),
    TOKENIZER,
    REPLAY,
)
def attach(
    current: CurrentLab,
    place: str,
    name: str = "trace",
    piece: int | None = None,
    rank: int | None = None,
    ranks: bool = False,
    tokenizer: str | None = None,
    replay: str | None = None,
) -> None:
    """Follow a running vLLM, or open what its tap wrote, call it `trace`, and show it.

    kv:tcp://HOST:PORT and kv:FILE.kvevents read KV events without the tap; they show only the prefix cache.
    """
    if is_kv_place(place):
        if piece is not None or rank is not None or ranks:
            raise UsageError("--piece and --rank are for the tap; KV events of all ranks are shown together")
        current.store(name, prefixes := kv_events(place, replay=replay, tokenizer=tokenizer))
        print(f"{name}: {prefixes.title}")
        display(prefixes)
        return
    if replay is not None:
        raise UsageError("--replay is for KV events, as in %lab attach kv:tcp://127.0.0.1:5557")
    if ranks:
        if piece is not None or rank is not None:
            raise UsageError("--ranks shows all running engines: omit --piece and --rank")
        opened = attach_ranks(place, tokenizer=tokenizer)
        current.look_at(name, opened.streams[0])
        current.store(name, opened)
        print(f"{name}.streams:\n{opened}")
        display(opened.show())
        return
    current.look_at(name, trace := streams.attach(place, piece=piece, rank=rank, tokenizer=tokenizer))
    print(f"{name}: {trace.summary()}\n{trace.note}")
    display(trace.show())


def _subject(recorded: Lab | ViewedRecording, subject: Sequence[str]) -> tuple[str, int | str]:
    kind, *others = subject
    if kind not in _SUBJECTS:
        raise UsageError(f"no {kind!r} to point at; {nearest(kind, _SUBJECTS)}")
    if len(others) != 1:
        example = {"request": "request A", "hash": "hash 0:ab12"}.get(kind, f"{kind} 3")
        raise UsageError(f"which {kind}? For example: {example}")
    if kind == "hash":
        return kind, others[0]
    if kind == "request" and recorded.timeline is not None:
        return kind, request_id_of(others[0], recorded.timeline.state().requests)
    if not others[0].lstrip("#").isdecimal():
        raise UsageError(f"a {kind} must be given by its number, got {others[0]!r}")
    return kind, int(others[0].lstrip("#"))


def _why_parted(current: CurrentLab) -> Any:
    if current.comparison is None:
        raise UsageError("name a subject: %lab why block 3, request A, hash 0:ab12, node 4, event 17 or next-victim")
    return current.comparison.why()


def _answer(recorded: Lab | ViewedRecording | Comparison, subject: dict[str, Any]) -> Any:
    from labengine_widgets.why import WhyError

    try:
        return recorded.why(**subject)
    except WhyError as error:
        raise UsageError(str(error)) from error
