"""The result of testing a report: a table of the columns' figures, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from textwrap import fill
from typing import Any

from labengine.events import Event
from labengine.record.table import Table as Table
from labengine.scenarios.report import UNKNOWN, Conclusion

_WIDTH = 100


_SUBJECTS = ("request", "block")
"""Fields of an event that a line names."""


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """The event that made the state wrong.

    moment: its number in the broken lab's timeline; the state after `moment` events is the last correct one.
    """

    moment: int
    event: Event
    sentence: str

    @property
    def line(self) -> str:
        """The event's number, kind, subjects and fault."""
        named = [(name, getattr(self.event, f"{name}_id", None)) for name in _SUBJECTS]
        subjects = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        about = f" ({subjects})" if subjects else ""
        return f"First wrong event, number {self.moment}: {type(self.event).__name__}{about}. {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, with bytes as hex."""
        values = {f.name: _plain(getattr(self.event, f.name)) for f in fields(self.event)}
        return {
            "moment": self.moment,
            "event": {"kind": type(self.event).__name__, **values},
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """Three judgements: what goes wrong here, what was seen in upstream's own code, and if the report's claim follows.

    reproduced: the broken column shows the reported defect. fixed: the fixed column does not. before, after: figures of
    the broken and the fixed column. findings: the experiments' answers, one sentence each. claim_holds: the
    conclusion's answer is "holds". conclusion: on upstream's code and the claim; not computed from the columns.
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
    conclusion: Conclusion = UNKNOWN
    names: tuple[str, str] = ("before", "after")
    """Names of the broken and the fixed column."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "id": self.id,
            "reproduced": self.reproduced,
            "fixed": self.fixed,
            "claim_holds": self.claim_holds,
            "first_wrong_event": self.first_wrong_event and self.first_wrong_event.to_dict(),
            "findings": list(self.findings),
            "before": dict(self.before),
            "after": dict(self.after),
            "claim_answer": self.conclusion.answer,
            "claim_reason": self.conclusion.reason,
            "upstream_runs": [run.to_dict() for run in self.conclusion.runs],
        }

    @property
    def table(self) -> Table:
        """Figures of the broken and the fixed column."""
        return Table("", dict(zip(self.names, (self.before, self.after), strict=True)))

    @property
    def judgement(self) -> str:
        """The columns' result here, and the conclusion on the claim."""
        return f"{self.reproduction(*self.names)} {self.conclusion.sentence}"

    def reproduction(self, broken: str, fixed: str) -> str:
        """Return the two columns' result here, in a sentence with these names."""
        wrong = "goes wrong" if self.reproduced else "does not go wrong"
        return f"Here {broken} {wrong}, {fixed} {'does not' if self.fixed else 'does'}."

    def __repr__(self) -> str:
        head = f"{self.id}  {self.title}".rstrip() + (f"\n{_wrapped(f'Claim: {self.claim}')}" if self.claim else "")
        parts = [head, _wrapped(self.judgement), str(self.table)]
        if self.first_wrong_event is not None:
            first = self.first_wrong_event
            parts.append(_wrapped(first.line))
        if self.findings:
            parts.append("\n".join(_wrapped(finding, "* ") for finding in self.findings))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.id)}</b> {escape(self.title)}</p>"]
        if self.claim:
            parts.append(f"<p><i>Claim:</i> {escape(self.claim)}</p>")
        parts += [f"<p><b>{escape(self.judgement)}</b></p>", self.table._repr_html_()]
        if self.first_wrong_event is not None:
            parts.append(f"<p>{escape(self.first_wrong_event.line)}</p>")
        items = "".join(f"<li>{escape(finding)}</li>" for finding in self.findings)
        return "".join(parts) + (f"<ul>{items}</ul>" if items else "")


def _wrapped(text: str, bullet: str = "") -> str:
    indent = " " * len(bullet)
    return fill(text, _WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False)


def _plain(value: Any) -> Any:
    """Convert an event's field to JSON types."""
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
