"""The work of each step: a run as a table, with a row for each request and a column for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Literal

from labengine.events import RequestAdded, RequestPreempted, RequestScheduled, StepStarted
from labengine.lab import Lab
from labengine.record.wording import request_name

Kind = Literal["prompt", "answer", "preempted", "waits"]
Cell = tuple[Kind, int | str]
"""A request's work in a step: its kind, and the number of tokens computed, or a sign."""

COLORS: Mapping[str, str] = {"prompt": "#0072B2", "answer": "#00785A", "preempted": "#B34700", "waits": "#77777733"}
_SIGNS = {"prompt": "6", "answer": "1", "waits": "·", "preempted": "✗"}
_BOX = "min-width:1.6em;padding:1px 3px;text-align:center;border:1px solid transparent;background-clip:padding-box"


def cells(lab: Lab) -> dict[int, dict[int, Cell]]:
    """Return the request's work per request and step."""
    assert lab.timeline is not None
    step = 0
    found: dict[int, dict[int, Cell]] = {}
    for event in lab.timeline.events():
        match event:
            case StepStarted():
                step = event.step
            case RequestAdded():
                found[event.request_id] = {step: ("waits", "")}
            case RequestScheduled():
                found[event.request_id][step] = ("prompt" if event.is_prefill else "answer", event.num_tokens)
            case RequestPreempted():
                found[event.request_id][step] = ("preempted", "✗")
    return found


@dataclass(frozen=True, repr=False)
class StepTable:
    """A drawn table: HTML with inline styles, so that saved notebooks show it, too."""

    html: str
    rows: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        return "\n".join("".join(f"{cell:>4}" for cell in row) for row in self.rows)

    def _repr_html_(self) -> str:
        return self.html


def draw(lab: Lab) -> StepTable:
    """Draw a run: a row for each request, a column for each step, and below them the tokens of each step."""
    steps = range(1, lab.snapshot().step + 1)
    sums = dict.fromkeys(steps, 0)
    texts, rows = [("", *map(str, steps))], [_row("th", "step", [_cell("th", step, "") for step in steps])]
    for request_id, done in cells(lab).items():
        shown = [_shown(done, step) for step in steps]
        for step, (_, number) in zip(steps, shown, strict=True):
            sums[step] += number if isinstance(number, int) else 0
        name = request_name(request_id)
        texts.append((name, *(str(number) for _, number in shown)))
        rows.append(_row("th", name, [_cell("td", number, kind) for kind, number in shown]))
    texts.append(("sum", *map(str, sums.values())))
    rows.append(_row("th", "sum", [f'<td style="{_BOX};opacity:0.7">{number}</td>' for number in sums.values()]))
    legend = " ".join(_cell("span", f"{sign} {kind}", kind) for kind, sign in _SIGNS.items())
    table = f'<table style="border-collapse:separate;border-spacing:0">{"".join(rows)}</table>'
    return StepTable(f"{table}<p>{legend}</p>", tuple(texts))


def _shown(done: Mapping[int, Cell], step: int) -> tuple[str, int | str]:
    """Return the content of a step's column; empty before a request arrives and after it ends."""
    return done.get(step, ("waits", "·")) if min(done) < step <= max(done) else ("", "")


def _row(tag: str, title: str, shown: list[str]) -> str:
    return f'<tr style="background:none"><{tag} style="{_BOX}">{escape(title)}</{tag}>{"".join(shown)}</tr>'


def _cell(tag: str, text: int | str, kind: str) -> str:
    ground = f"background-color:{COLORS[kind]};" if kind else ""
    ink = "inherit" if kind in ("", "waits") else "white"
    weight = ";font-weight:normal" if tag == "th" else ""
    return f'<{tag} style="{_BOX};{ground}color:{ink}{weight}">{escape(str(text))}</{tag}>'
