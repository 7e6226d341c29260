"""The judgement on one workload: errors that occur with the suspects, and not without them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from labengine.config import ConfigError
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.finder.liveness import drain
from labengine.finder.operations import TakeStep, Workload
from labengine.finder.sandbox import Finding, Kind, Sandbox, raised
from labengine.finder.scopes import Scope
from labengine.finder.suspects import Suspects
from labengine.finder.tally import first_difference, worse
from labengine.isolation.endings import is_of_a_part

KINDS: tuple[Kind, ...] = ("rule", "raises", "liveness", "worse", "differs")
"""Kinds of findings, the gravest first."""


GRAVE = KINDS[:3]
"""Kinds that end a search: errors in themselves, not only in comparison with a reference."""


HITS_LOST = ("longest", "registered")
"""Rules whose violation only costs hits: a search without the kind "rule" passes them over and counts the cost."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload in a scope."""

    scope: Scope
    workload: Workload


@dataclass(frozen=True)
class Judgement:
    """Judges workloads. kinds: those that count; margin: tokens or blocks by which a run must be worse."""

    suspects: Suspects
    kinds: Collection[Kind] = KINDS
    margin: int = 1
    notes: list[Callable[[Case], object]] = field(default_factory=list, compare=False)
    """Called with each case before it is run, so that a lost process leaves its last case behind."""
    overrides: dict[str, bool | None] = field(default_factory=dict, compare=False)
    """The effect of the suspects' overrides so far, as Watch.overrides."""

    def sandbox(self, scope: Scope, parts: Parts | None = None) -> Sandbox:
        """Return an empty sandbox of the suspects, or of other parts."""
        if parts is None:
            maker = self.suspects.make_connector or _maker(scope)
            parts, overrides = self.suspects.parts, self.overrides
        else:
            maker, overrides = _maker(scope), {}
        passed_over = () if "rule" in self.kinds else HITS_LOST
        return Sandbox(
            scope.config,
            parts,
            maker,
            scope.proposer,
            repeats=scope.repeats,
            overrides=overrides,
            passed_over=passed_over,
        )

    def of(self, case: Case, sandbox: Sandbox | None = None) -> tuple[Finding, Case] | None:
        """Run a workload to its end; return the gravest finding that counts, and the workload up to it."""
        for note in self.notes:
            note(case)
        sandbox = sandbox or self.sandbox(case.scope)
        found = self._found(sandbox, case)
        return None if found is None else (replace(found[0], differed=sandbox.differed), found[1])

    def confirmed(self, found: tuple[Finding, Case] | None) -> tuple[Finding, Case] | None:
        """Return a finding; an endless one only if it recurs, because a crowded machine can make an operation late."""
        return found if found is None or found[0].rule != "endless" else self.of(found[1])

    def _found(self, sandbox: Sandbox, case: Case) -> tuple[Finding, Case] | None:
        found = _run(sandbox, case)
        if found is None:
            return None
        finding, played = found
        if finding is not None:
            counts = finding.kind in self.kinds and not self._is_of_the_base(finding, played)
            return (finding, played) if counts else None
        return self._held_against(sandbox, _without_last_steps(case))

    def guarded(self, case: Case, on_begin: Callable[[int], object]) -> tuple[Finding, Case] | None:
        """Judge as `of` in a new sandbox; an exception of a part outside of an operation is a finding, too.

        on_begin: called with the number (from 1) of each operation before it is done; the steps to the end follow
        those of the workload.
        """
        try:
            sandbox = self.sandbox(case.scope)
            sandbox.on_begin = on_begin
            return self.of(case, sandbox)
        except BaseException as error:
            if not is_of_a_part(error):
                raise
            return raised(error), case

    def _is_of_the_base(self, finding: Finding, case: Case) -> bool:
        """Return True if the parts' edition, or a user's reference, has the same error."""
        return any(self._goes_wrong(finding, case, parts) for parts in self.suspects.excusing)

    def _goes_wrong(self, finding: Finding, case: Case, parts: Parts) -> bool:
        try:
            found = _run(self.sandbox(case.scope, parts), case)
        except ConfigError:  # these parts do not support the scope
            return False
        return found is not None and found[0] is not None and found[0].kind == finding.kind

    def _held_against(self, sandbox: Sandbox, case: Case) -> tuple[Finding, Case] | None:
        """Compare a run to its end with the reference's; the steps to the end do not belong to the workload."""
        if not {"worse", "differs"} & set(self.kinds) or self.suspects.parts == self.suspects.reference:
            return None
        other = self.sandbox(case.scope, self.suspects.reference)
        try:
            found = _run(other, case)
        except ConfigError:
            return None
        if found is None or found[0] is not None:
            return None
        name = self.suspects.reference.name
        more = worse(sandbox.tally.cost(), other.tally.cost(), self.margin)
        if more and "worse" in self.kinds:
            return Finding("worse", f"it {more} with {name}"), case
        different = first_difference(sandbox.tally, other.tally)
        if different and "differs" in self.kinds:
            return Finding("differs", f"{sandbox.breach}{different[0]}; with {name}, {different[1]}"), case
        return None


def _without_last_steps(case: Case) -> Case:
    length = len(case.workload)
    while length and isinstance(case.workload[length - 1], TakeStep):
        length -= 1
    return Case(case.scope, case.workload[:length])


def _maker(scope: Scope) -> Callable[[], Connector] | None:
    return None if scope.tier is None else scope.tier.make


def _run(sandbox: Sandbox, case: Case) -> tuple[Finding | None, Case] | None:
    """Do a workload, then steps to its end; return the finding and all operations. None if a request never fits."""
    try:
        finding, length = sandbox.run(case.workload)
    except ConfigError:
        return None
    if finding is not None:
        return finding, Case(case.scope, case.workload[:length])
    finding, steps = drain(sandbox, num_before=len(case.workload))
    if finding is not None and finding.rule == "liveness":  # the steps to the end do not belong to the workload
        return finding, case
    return finding, Case(case.scope, (*case.workload, *steps))
