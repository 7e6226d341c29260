"""The results of a run, and an assertion that tells two runs apart: their first difference that a test can name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Protocol

from labengine.finder.tally import Tally
from labengine.record.hooks import Hooks
from labengine.record.snapshot import RequestState, Snapshot
from labengine.record.timeline import Timeline
from labengine.session.source_text import quoted


class ObservedLab(Protocol):
    """The lab to observe."""

    @property
    def timeline(self) -> Timeline | None: ...
    def snapshot(self) -> Snapshot: ...
    def stats(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Observed:
    """A run's final state, its decisions, and their cost."""

    snapshot: Snapshot
    decisions: Sequence[str]
    cost: dict[str, int]


def tally_of(lab: ObservedLab) -> Tally:
    """Return the tally of a recorded lab."""
    hooks = Hooks()
    tally = Tally(hooks)
    assert lab.timeline is not None, "decisions and costs need a recording: Lab(record=True)"
    hooks.emit_all(lab.timeline.events())
    return tally


def observed(lab: ObservedLab) -> Observed:
    """Return the results of a lab's run."""
    tally = tally_of(lab)
    return Observed(lab.snapshot(), tally.decisions, asdict(tally.cost(lab.stats().peak_used_blocks)))


def telling(run: Observed, right: Observed) -> str:
    """Return an assertion on `lab` that holds only for the right run; empty if both runs are alike."""
    return next(_differences(run, right), "")


def _differences(run: Observed, right: Observed) -> Iterator[str]:
    """Yield the differences, the most telling first."""
    requests = [(i, run.snapshot.requests.get(i), one) for i, one in right.snapshot.requests.items()]
    for request_id, mine, its in requests:
        if mine is not None:
            yield from _request_differences(f"lab.snapshot().requests[{request_id}]", mine, its)
    if run.snapshot.step != right.snapshot.step:
        yield f"lab.snapshot().step == {right.snapshot.step}"
    for number, (one, other) in enumerate(zip_longest(run.decisions, right.decisions)):
        if one != other:
            yield f"decisions(lab)[{number}:{number + 1}] == [{'' if other is None else quoted(other)}]"
    yield from (f"cost(lab).{name} == {value}" for name, value in right.cost.items() if run.cost[name] != value)
    for name in ("free_queue", "prefix_map"):
        if getattr(run.snapshot, name) != (value := getattr(right.snapshot, name)):
            yield f"lab.snapshot().{name} == {value!r}"


def _request_differences(name: str, mine: RequestState, its: RequestState) -> Iterator[str]:
    if mine.status != its.status:
        yield f'{name}.status == "{its.status}"'
    if len(mine.token_ids) != len(its.token_ids):
        yield f"len({name}.token_ids) == {len(its.token_ids)}"
    if mine.num_computed_tokens != its.num_computed_tokens:
        yield f"{name}.num_computed_tokens == {its.num_computed_tokens}"
