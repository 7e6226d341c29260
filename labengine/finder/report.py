"""The report of a search: what was tried."""

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
    """What a search has tried; falsy, for nothing was found."""

    name: str
    """Name of the parts."""
    against: str
    kinds: tuple[Kind, ...]
    num_states: int
    """States reached, over all searchers."""
    num_distinct: int
    """Distinct states of the complete searches, up to the names of requests and blocks."""
    num_workloads: int
    """Random workloads."""
    exhausted: tuple[str, ...]
    """Scopes of which every workload was tried."""
    seconds: float
    seed: int
    unfinished: tuple[Unfinished, ...] = ()
    """Scopes whose states fill a process's memory; random workloads went on in them."""
    operations: tuple[str, ...] = ()
    """Kinds of operations that were tried."""
    overrides: tuple[str, ...] = ()
    """Sentences on overrides that were never called, or have decided otherwise than production."""
    remarks: tuple[str, ...] = ()
    """Processes that were lost, a sentence each."""
    is_cut: bool = False
    """True if the search was interrupted, or a searcher was lost or has not come to its end: less was searched."""

    @classmethod
    def of(
        cls, suspects: Suspects, kinds: tuple[Kind, ...], counts: Sequence[SearchCounts], seconds: float, seed: int
    ) -> SearchReport:
        """Return the report of searchers that counted this."""
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
            tuple(override_notes(all_.overrides, "nothing went wrong by it")),
            tuple(dict.fromkeys(all_.remarks)),
            all_.is_cut,
        )

    def __bool__(self) -> bool:
        return False

    @property
    def states_per_second(self) -> float:
        """States reached in a second, by all searchers together."""
        return self.num_states / self.seconds

    def __repr__(self) -> str:
        searched = (
            f"{counted(self.num_states, 'state')} in {self.seconds:.0f} s ({self.states_per_second:,.0f} a second), "
            f"{counted(self.num_workloads, 'random workload')} (seed {self.seed})"
        )
        names = listed(self.exhausted, len(self.exhausted) + 1)
        complete = f"Exhausted: {names}." if self.exhausted else "No scope was exhausted."
        name = f"{self.name}, as far as the search has come" if self.is_cut else self.name
        lines = [
            f"Nothing found with {name}: no {' | '.join(self.kinds)}.",
            f"Searched: {searched}. {complete}",
        ]
        lines += [f"Operations: {', '.join(self.operations)}."] if self.operations else []
        lines += [
            f"Not exhausted: {one.scope}: {counted(one.num_states, 'state')} fill the memory; all workloads of up to "
            f"{counted(one.depth, 'operation')} were tried."
            for one in self.unfinished
        ]
        return "\n".join([*lines, *self.overrides, *self.remarks])

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in repr(self).splitlines())
