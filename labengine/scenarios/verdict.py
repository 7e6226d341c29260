"""What came out when a report was put to the test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from textwrap import fill
from typing import Any

from labengine.events import Event
from labengine.scenarios.table import Table

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The event that made the state wrong.

    moment: its number in the broken lab's timeline; the state after `moment` events is the last one that was right.
    """

    moment: int
    event: Event
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; bytes as hex."""
        values = {f.name: _plain(getattr(self.event, f.name)) for f in fields(self.event)}
        return {
            "moment": self.moment,
            "event": {"kind": type(self.event).__name__, **values},
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """Judged by running, not written down.

    reproduced: the broken column shows what the scenario is about. fixed: the fixed one does not.
    claim_holds: the report's claim is true. findings: what the experiments showed, a sentence each.
    before, after: what the broken and the fixed column measured.
    """

    id: str
    reproduced: bool
    fixed: bool
    claim_holds: bool
    first_wrong_event: FirstWrong | None
    findings: tuple[str, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    title: str = ""
    claim: str = ""
    names: tuple[str, str] = ("before", "after")
    """Of the broken and the fixed column."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "id": self.id,
            "reproduced": self.reproduced,
            "fixed": self.fixed,
            "claim_holds": self.claim_holds,
            "first_wrong_event": self.first_wrong_event and self.first_wrong_event.to_dict(),
            "findings": list(self.findings),
            "before": dict(self.before),
            "after": dict(self.after),
        }

    @property
    def table(self) -> Table:
        """What the broken and the fixed column measured."""
        return Table("", dict(zip(self.names, (self.before, self.after), strict=True)))

    @property
    def judgement(self) -> str:
        """The three answers in one line."""
        claim = "The claim holds" if self.claim_holds else "The claim does not hold"
        broken = "goes wrong" if self.reproduced else "does not go wrong"
        fixed = "does not" if self.fixed else "does"
        return f"{claim}. {self.names[0]} {broken}, {self.names[1]} {fixed}."

    def __repr__(self) -> str:
        head = f"{self.id}  {self.title}".rstrip() + (f"\n{_wrapped(f'Claim: {self.claim}')}" if self.claim else "")
        parts = [head, _wrapped(self.judgement), str(self.table)]
        if self.first_wrong_event is not None:
            first = self.first_wrong_event
            parts.append(_wrapped(f"First wrong event, number {first.moment}: {first.sentence}"))
        if self.findings:
            parts.append("\n".join(_wrapped(finding, "* ") for finding in self.findings))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.id)}</b> {escape(self.title)}</p>"]
        if self.claim:
            parts.append(f"<p><i>Claim:</i> {escape(self.claim)}</p>")
        parts += [f"<p><b>{escape(self.judgement)}</b></p>", self.table._repr_html_()]
        if self.first_wrong_event is not None:
            number, sentence = self.first_wrong_event.moment, escape(self.first_wrong_event.sentence)
            parts.append(f"<p><i>First wrong event, number {number}:</i> {sentence}</p>")
        items = "".join(f"<li>{escape(finding)}</li>" for finding in self.findings)
        return "".join(parts) + (f"<ul>{items}</ul>" if items else "")


def _wrapped(text: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    return fill(text, _WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False)


def _plain(value: Any) -> Any:
    """Return an event's field as plain JSON."""
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
