"""Random workloads on a driven engine without a tap: its states beside the events that are inferred from them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from labengine import events as ev
from labengine.config import EngineConfig
from labengine.driven.corrected import told_state
from labengine.driven.inside.symptoms import differences
from labengine.driven.model import DrivenModel
from labengine.driven.process import EngineProcess
from labengine.driven.states import StateReader
from labengine.finder.engines.scopes import EngineScope, wire_workload
from labengine.finder.operations import Operation
from labengine.record.fold_state import FINISHED
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

NUM_STEPS = 400


class Followed:
    """One engine that is driven call by call. found: what its states and the events say differently."""

    def __init__(self, process: EngineProcess, edition: str, config: EngineConfig, settings: dict[str, Any]) -> None:
        model = SimpleNamespace(config=config, driven=SimpleNamespace(edition=edition), name=edition)
        self.timeline, self.events, self.found = Timeline(), list[ev.Event](), list[str]()
        hooks = Hooks()
        hooks.subscribe(self.events.append)
        self.reader = StateReader(cast(DrivenModel, model), self.timeline, hooks, None)
        self._process = process
        self.is_idle = True
        self.error: list[str] | None = None
        """The engine's exception, if it has raised one."""
        self._ask([], settings=settings)

    def do(self, operation: list[Any]) -> None:
        """Do one operation; an abort of a request that has ended is left out."""
        if operation[0] == "abort":
            request = self.reader.fold.requests.get(operation[1])
            if request is None or request.status == FINISHED:
                return
        self._ask([[*operation, {}] if operation[0] == "add" else operation])

    def _ask(self, operations: list[list[Any]], **more: Any) -> None:
        answer = self._process.ask({"operations": operations, "goes_on": True, **more}, 60)
        self.error, self.is_idle = answer["error"], answer["is_idle"]
        if self.error:
            return
        for call, state, plan in answer["states"]:
            self.reader.take({"operations": operations, "states": [(call, state, plan)]})
            told = told_state(self.reader.fold)
            self.found += differences(state, {part: told[part] for part in told if part in state})


def play(process: EngineProcess, scope: EngineScope, workload: tuple[Operation, ...]) -> Followed:
    """Play a workload, and steps to the end."""
    wire = wire_workload(scope, workload)
    followed = Followed(process, scope.engine, scope.config, wire["settings"])
    for operation in steps_to_end(wire["operations"], followed):
        followed.do(operation)
        if followed.error:
            break
    return followed


def steps_to_end(operations: list[list[Any]], followed: Followed) -> Iterator[list[Any]]:
    """Yield the operations, without steps of an idle engine, and then steps until it is idle."""
    yield from (one for one in operations if one != ["step"] or not followed.is_idle)
    for _ in range(NUM_STEPS):
        if followed.is_idle:
            return
        yield ["step"]
