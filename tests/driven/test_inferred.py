"""Events inferred from states: those of labengine's editions, played like engines without a tap, and broken ones."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from labengine import events as ev
from labengine.driven.corrected import contradictions
from labengine.driven.inferred import Inferring
from labengine.driven.model import DrivenModel
from labengine.driven.states import StateReader
from labengine.finder.engines.edition import EditionEngine
from labengine.finder.engines.scopes import EngineScope, nano_scopes, sglang_scopes, tree_scopes, wire_workload
from labengine.finder.random_search import RandomWorkloads
from labengine.record.fold_state import FINISHED
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

SCOPES: dict[str, Callable[[], tuple[EngineScope, ...]]] = {
    "nano-vllm": nano_scopes,
    "mini-sglang": lambda: tree_scopes("mini-sglang"),
    "sglang": sglang_scopes,
}
NUM_WORKLOADS = 25
Told = tuple[str, dict[str, Any], dict[str, Any]]


class Played:
    """A workload on an edition: its operations, and after each call the state, the plan and the edition's own fold."""

    def __init__(self, scope: EngineScope, operations: list[list[Any]]) -> None:
        self.engine, self.scope = EditionEngine(scope), scope
        self.operations: list[list[Any]] = []
        self.states: list[Told] = [("start", self.engine.state(), {})]
        self.folds = [self.engine.rerun.timeline.state()]
        self.engine.after_call = self._keep
        self._plan: dict[str, Any] = {}
        for operation in operations:
            self._do(operation)
        while not self.engine.is_idle:
            self.engine.step()

    def _do(self, operation: list[Any]) -> None:
        what, *values = operation
        if what == "add":
            self.engine.add(str(sum(one[0] == "add" for one in self.operations)), *values)
            operation = [*operation, {"seed": 0}]
        elif what == "abort":
            request = self.folds[-1].requests.get(values[0])
            if request is None or request.status == FINISHED:
                return
            self.engine.abort(str(values[0]))
        else:
            self.engine.step()
        self.operations.append(operation)

    def _keep(self, call: str) -> None:
        if call == "schedule":
            planned = self.engine.rerun.newest_plan.scheduled
            self._plan = {str(one.request_id): (one.start, one.num_tokens) for one in planned}
        self.states.append((call, self.engine.state(), self._plan))
        self.folds.append(self.engine.rerun.timeline.state())


def played(name: str, number: int, seed: int = 3) -> list[Played]:
    source = RandomWorkloads(SCOPES[name](), seed)
    cases = [source.next() for _ in range(number)]
    return [Played(cast(EngineScope, one.scope), wire_workload(one.scope, one.workload)["operations"]) for one in cases]


def reader_of(scope: EngineScope) -> tuple[StateReader, list[ev.Event]]:
    """A reader, and the events that it tells."""
    events, hooks = list[ev.Event](), Hooks()
    hooks.subscribe(events.append)
    driven = SimpleNamespace(edition=scope.engine)
    model = SimpleNamespace(config=scope.config, driven=driven, name=scope.engine, header=None)
    return StateReader(cast(DrivenModel, model), Timeline(), hooks, None), events


def take(reader: StateReader, run: Played, states: list[Told]) -> None:
    reader.take({"operations": run.operations, "states": states})


def said(events: list[ev.Event]) -> list[str]:
    return [one.message for one in events if isinstance(one, ev.ViolationFound) and "itself" not in one.message]


@pytest.mark.parametrize("name", SCOPES)
def test_the_events_lead_to_every_state(name: str) -> None:
    kinds = set[str]()
    for run in played(name, NUM_WORKLOADS):
        reader, events = reader_of(run.scope)
        take(reader, run, run.states)
        assert not said(events), run.operations
        assert not contradictions(reader.fold, run.states[-1][1])
        assert reader.timeline.state().snapshot() == reader.fold.snapshot()
        kinds |= {type(one).__name__ for one in events}
    assert {"PrefixHit", "BlockTouched", "BlockEvicted", "TokenSampled", "RequestFinished"} <= kinds
    assert {"NodeInserted", "NodeSplit", "NodeEvicted", "NodesTouched"} <= kinds or name == "nano-vllm"


def test_the_fold_is_that_of_the_edition() -> None:
    """In all but the number of steps, for which an edition driven by its calls has no events."""
    for run in played("nano-vllm", NUM_WORKLOADS):
        reader, _ = reader_of(run.scope)
        take(reader, run, run.states)
        assert replace(reader.fold.snapshot(), step=0) == run.folds[-1].snapshot()


def test_a_request_gives_its_blocks_back_last_block_first() -> None:
    """Also those that others still hold, which no queue shows."""
    num_shared = 0
    for run in played("nano-vllm", NUM_WORKLOADS):
        reader, events = reader_of(run.scope)
        take(reader, run, run.states)
        freed: dict[int, list[ev.BlockFreed]] = {}
        for event in events:
            if isinstance(event, ev.BlockFreed):
                freed.setdefault(event.request_id, []).append(event)
            elif isinstance(event, ev.RequestFinished):
                given = freed.pop(event.request_id, [])
                num_shared += any(one.ref_count for one in given)
                assert [one.index for one in given] == sorted((one.index for one in given), reverse=True)
            elif isinstance(event, ev.RequestPreempted):
                freed.pop(event.request_id, None)
    assert num_shared > 5


# -- faults ------------------------------------------------------------------------------------------------------------


def busy(run: Played) -> int:
    """The number of a state with a request that holds blocks."""
    return next(i for i, (_, state, _) in enumerate(run.states) if any(t[0] for _, t in state["requests"].values()))


def free_block_in_use(state: dict[str, Any]) -> None:
    table = next(tables[0] for _, tables in state["requests"].values() if tables[0])
    state["free_queue"].append(table[0])


def lost_block(state: dict[str, Any]) -> None:
    state["free_queue"].pop()


def no_such_block(state: dict[str, Any]) -> None:
    next(tables[0] for _, tables in state["requests"].values() if tables[0]).append(10_000)


def nonsense(state: dict[str, Any]) -> None:
    state["free_queue"] = [None, "x", -5]


@pytest.mark.parametrize("name", SCOPES)
@pytest.mark.parametrize("fault", [free_block_in_use, lost_block, no_such_block, nonsense])
def test_a_contradictory_state_is_shown_with_a_violation(name: str, fault: Callable[[dict[str, Any]], None]) -> None:
    run = played(name, 1)[0]
    states = deepcopy(run.states)
    place = busy(run)
    fault(states[place][1])
    reader, events = reader_of(run.scope)
    take(reader, run, states[: place + 1])
    assert [one.rule for one in events if isinstance(one, ev.ViolationFound)][:1] == ["said"]
    if fault is free_block_in_use:
        assert list(reader.fold.free_queue) == states[place][1]["free_queue"]
    take(reader, run_after(run, states, place), states[place + 1 :])
    assert not contradictions(reader.fold, states[-1][1])


def run_after(run: Played, states: list[Told], place: int) -> Played:
    """The operations whose calls come after a place."""
    num_done = sum(call in ("add", "abort") for call, *_ in states[: place + 1])
    rest = [one for one in run.operations if one[0] in ("add", "abort")][num_done:]
    return cast(Played, SimpleNamespace(operations=rest))


def test_a_fault_of_the_inference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_evictions(self: Inferring, event: ev.Event, tell: Any = Inferring.tell) -> None:
        if not isinstance(event, ev.BlockEvicted):
            tell(self, event)

    monkeypatch.setattr(Inferring, "tell", all_but_evictions)
    found = []
    for run in played("nano-vllm", NUM_WORKLOADS):
        reader, events = reader_of(run.scope)
        take(reader, run, run.states)
        found += said(events)
    assert found
