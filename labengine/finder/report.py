"""The report of a search without a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from html import escape

from labengine.finder.operations import WHAT
from labengine.finder.sandbox import Kind
from labengine.finder.search import SearchCounts, Unfinished
from labengine.finder.suspects import Suspects
from labengine.record.wording import counted, listed
from labengine.session.overrides_in_use import override_notes


@dataclass(frozen=True)
class SearchReport:
    """The extent of a search without a finding; falsy."""

    name: str
    """Name of the parts."""
    against: str
    kinds: tuple[Kind, ...]
    num_states: int
    """States reached by all searchers together."""
    num_distinct: int
    """Distinct states of the complete searches, up to the names of requests and blocks."""
    num_workloads: int
    """Random workloads."""
    exhausted: tuple[str, ...]
    """Scopes in which every workload was tried."""
    seconds: float
    seed: int
    unfinished: tuple[Unfinished, ...] = ()
    """Scopes whose states fill a process's memory, and which random workloads continued."""
    operations: tuple[str, ...] = ()
    """Kinds of operations tried."""
    overrides: tuple[str, ...] = ()
    """Sentences on overrides that were never called, or that have decided differently from production."""
    remarks: tuple[str, ...] = ()
    """A sentence per lost process."""
    is_cut: bool = False
    """True if less was searched, because of an interrupt or a lost or unfinished searcher."""

    @classmethod
    def of(
        cls, suspects: Suspects, kinds: tuple[Kind, ...], counts: Sequence[SearchCounts], seconds: float, seed: int
    ) -> SearchReport:
        """Return the report of searchers with these counts."""
        all_ = reduce(SearchCounts.plus, counts)
        return cls(
            suspects.parts.name,
            suspects.reference.name,
            kinds,
            all_.generated,
            all_.distinct,
            all_.num_workloads,
            tuple(dict.fromkeys(all_.exhausted)),
            seconds,
            seed,
            tuple(dict.fromkeys(all_.unfinished)),
            tuple(what for what in WHAT if what in all_.operations),
            tuple(override_notes(all_.overrides, "nothing went wrong because of it")),
            tuple(dict.fromkeys(all_.remarks)),
            all_.is_cut,
        )

    def __bool__(self) -> bool:
        return False

    @property
    def states_per_second(self) -> float:
        """States per second, reached by all searchers together."""
        return self.num_states / self.seconds

    def __repr__(self) -> str:
        searched = (
            f"{counted(self.num_states, 'state')} in {self.seconds:.0f} s ({self.states_per_second:,.0f} a second), "
            f"{counted(self.num_workloads, 'random workload')} (seed {self.seed})"
        )
        names = listed(self.exhausted, len(self.exhausted) + 1)
        complete = f"Exhausted: {names}." if self.exhausted else "No scope was exhausted."
        name = f"{self.name} in a search cut short" if self.is_cut else self.name
        lines = [
            f"Nothing found with {name}: no {' | '.join(self.kinds)}.",
            f"Searched: {searched}. {complete}",
        ]
        lines += [f"Operations: {', '.join(self.operations)}."] if self.operations else []
        lines += [
            f"Not exhausted: {one.scope}, whose {counted(one.num_states, 'state')} filled the memory; all workloads of "
            f"up to {counted(one.depth, 'operation')} were tried."
            for one in self.unfinished
        ]
        return "\n".join([*lines, *self.overrides, *self.remarks])

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in repr(self).splitlines())
