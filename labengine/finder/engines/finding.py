"""The findings of a search on another engine: the smallest workload for each error, and the search's counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from textwrap import indent
from typing import cast

from labengine.driven.script import script_of
from labengine.finder.engines.edition import expected_states
from labengine.finder.engines.scopes import EngineScope, wire_workload
from labengine.finder.judgement import Case
from labengine.finder.operations import Abort, Add, Operation, Reset
from labengine.finder.sandbox import Finding, Kind
from labengine.record.files.file_access import replace_file
from labengine.record.wording import counted, listed

HEADLINES: Mapping[Kind, str] = {
    "rule": "breaks the rule",
    "raises": "raises",
    "liveness": "never ends",
    "worse": "finds less in its cache than it could",
    "differs": "differs from its edition",
}


@dataclass(frozen=True)
class EngineFinding:
    """The smallest workload found for one error of an engine.

    engine: its name and release; num_before: workloads before it was found; seconds: since the search began.
    """

    engine: str
    finding: Finding
    case: Case
    num_before: int
    seconds: float
    source: str = field(repr=False)
    """The file that drives the engine."""
    patch: str = field(default="", repr=False)
    """The text of the change under test."""
    other: str = ""
    """The engine that it is compared with; empty for its edition."""

    @property
    def kind(self) -> Kind:
        """The kind of error: rule, raises, liveness, worse or differs."""
        return self.finding.kind

    @property
    def headline(self) -> str:
        """One line: the engine and its error."""
        rule = f" {self.finding.rule}" if self.kind in ("rule", "raises") and not self.finding.ends_process else ""
        length = counted(len(self.case.workload), "operation")
        wrong = f"differs from {self.other}" if self.other else HEADLINES[self.kind]
        wrong = "ends its process" if self.finding.ends_process else wrong
        return f"{self.engine} {wrong}{rule} after {length} ({self.case.scope.name})."

    def to_script(self) -> str:
        """Return a script that shows the error and needs only the engine."""
        scope = cast(EngineScope, self.case.scope)
        wire = wire_workload(scope, self.case.workload)
        expected = expected_states(scope, wire) if self.kind == "differs" and not self.other else []
        return script_of(f"{self.headline}\n\n{self.finding.message}", self.source, self.patch, wire, expected)

    def save_script(self, path: str | PathLike[str]) -> None:
        """Write the script to a file."""
        replace_file(path, self.to_script().encode())

    def __str__(self) -> str:
        scope = cast(EngineScope, self.case.scope)
        settings = ", ".join(f"{name}={value!r}" for name, value in scope.settings.items() if value)
        lines = [settings, *map(line_of, self.case.workload)]
        found = f"Found after {counted(self.num_before, 'workload')}, in {self.seconds:.1f} s."
        return f"{self.headline}\n{self.finding.message}\n\n{indent(chr(10).join(lines), '    ')}\n\n{found}"


@dataclass(frozen=True)
class EngineSearch:
    """The result of a search on an engine; truthy if it has findings. Only the first of similar findings is kept."""

    engine: str
    findings: tuple[EngineFinding, ...]
    num_alike: int
    """Further workloads with the same error as a finding."""
    num_workloads: int
    num_steps: int
    num_distinct: int
    """States that differ by more than names, over all scopes; counted within a thousandth."""
    num_conforming: int
    """Workloads whose events all conform to the edition."""
    unjudged: Mapping[str, int]
    """Number of workloads that the edition could not follow to their end, per reason."""
    seconds: float
    seed: int
    remarks: Sequence[str] = ()
    is_cut: bool = False
    """True if less was searched, because of an interrupt or because the engine did not answer at the end."""
    other: str = ""
    """The engine that it was compared with; empty for its edition."""

    def __bool__(self) -> bool:
        return bool(self.findings)

    @property
    def _all_clear(self) -> str:
        if self.other:
            return f"No difference found between {self.engine} and {self.other}."
        return f"Nothing found with {self.engine}."

    def __repr__(self) -> str:
        rate = self.num_workloads / max(self.seconds, 0.001)
        searched = (
            f"Searched: {counted(self.num_workloads, 'random workload')} (seed {self.seed}) in {self.seconds:.0f} s "
            f"({rate:,.0f} a second), {counted(self.num_steps, 'step')}"
            + (f", {counted(self.num_distinct, 'distinct state')}." if self.num_distinct else ".")
        )
        lines = [str(one) for one in self.findings] or [self._all_clear]
        lines.append(searched)
        if self.other:
            verb = "is" if self.num_conforming == 1 else "are"
            lines.append(f"{counted(self.num_conforming, 'workload')} {verb} the same on both, event by event.")
        elif self.num_distinct:
            lines.append(f"{self.num_conforming:,} workloads conform, event by event, to their edition.")
        if self.num_alike:
            found = "differ in the same ways as those" if self.other else "had the same errors as the ones"
            lines.append(f"{counted(self.num_alike, 'more workload')} {found} shown.")
        if self.unjudged:
            reasons = listed([f"{why} ({number:,})" for why, number in self.unjudged.items()])
            lines.append(f"Workloads that no edition could judge to the end: {reasons}.")
        return "\n".join([*lines, *self.remarks])


def line_of(operation: Operation) -> str:
    """Return an operation as a line."""
    match operation:
        case Add(token_ids, max_tokens, salt, priority=priority):
            more = (f", salt={salt!r}" if salt else "") + (f", priority={priority}" if priority else "")
            return f"add {list(token_ids)}, max_tokens={max_tokens}{more}"
        case Abort(request_id):
            return f"abort request {request_id}"
        case Reset():
            return "reset the prefix cache"
        case _:
            return "step"
