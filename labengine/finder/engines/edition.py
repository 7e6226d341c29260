"""An edition driven like another engine: the design's states after each call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from labengine import events as ev
from labengine.core.editions import VLLM_ASYNC, edition
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.parts import Parts
from labengine.core.request import ExtraKeys
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.core.step_plan import StepPlan
from labengine.driven.inside.symptoms import actions
from labengine.engine.simulated import default_next_token
from labengine.finder.engines.scopes import EngineScope
from labengine.finder.limits import NUM_STEPS
from labengine.record.fold import Fold
from labengine.record.fold_state import FINISHED, RequestFold
from labengine.vllm.conformance.edition_run import Rerun

LONGEST = 8192


def edition_of(scope: EngineScope) -> Parts:
    """Return the edition that an engine of this scope is compared with."""
    if scope.is_async:
        return VLLM_ASYNC
    parts = edition(scope.edition or scope.engine)
    return _with_ratio(parts, scope.new_token_ratio) if issubclass(parts.scheduler, SglangScheduler) else parts


@cache
def _with_ratio(parts: Parts, ratio: float) -> Parts:
    class Scheduler(parts.scheduler):  # type: ignore[misc,name-defined]
        first_new_token_ratio = ratio

    return Parts(Scheduler).overriding(parts)


class EditionEngine:
    """An edition's scheduler with the methods of a driven engine; see labengine/driven/inside/vllm_scheduler.py."""

    def __init__(self, scope: EngineScope, parts: Parts | None = None) -> None:
        """parts: replace the edition's parts."""
        self.rerun = Rerun(scope.config, parts or edition_of(scope), {}, LONGEST)
        self.after_call: Callable[[str], object] = lambda call: None
        self._depth = 2 if scope.is_async else 1
        self._is_vllm = scope.engine == "vllm"
        self._in_flight: deque[StepPlan] = deque()
        self._has_ended = False
        """True if a request has ended since the newest step was planned: vLLM plans another to tell its worker."""
        kinds = tuple((group.kind, group.block_size, group.window) for group in scope.config.groups)
        null_block = self.rerun.scheduler.manager.pool.null_block
        self.rerun.mark(ev.EngineStarted(scope.config.num_blocks, kinds, self.rerun.name, null_block))

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs, and every step is booked."""
        return not (self._in_flight or self._has_requests)

    @property
    def _has_requests(self) -> bool:
        scheduler = self.rerun.scheduler
        has_news = self._has_ended and self._is_vllm
        return bool(has_news or scheduler.running or scheduler.waiting)

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        """Queue a request."""
        keys: ExtraKeys = (("cache_salt", salt),) if salt else ()
        added = ev.RequestAdded(int(name), tuple(prompt), max_tokens)
        self._called("add", self.rerun.add(self.rerun.request(added, keys, int(name), is_unread=False), max_tokens))

    def step(self) -> bool:
        """Schedule ahead while there is room, else book the oldest step, as vLLM's EngineCore does."""
        if self.is_idle:
            return False
        if self._has_requests:
            self._has_ended = False
            found = self.rerun.schedule()
            plan = self.rerun.newest_plan
            self._in_flight.append(plan)
            self._called("schedule", found)
            if len(self._in_flight) < self._depth and plan.num_tokens:
                return True
        plan = self._in_flight.popleft()
        requests = self.rerun.scheduler.requests
        sampling = (part.request_id for part in plan.sampling)
        self._called(
            "update", self.rerun.update({i: [default_next_token(0, requests[i].num_tokens)] for i in sampling}, {})
        )
        return bool(plan.scheduled)

    def abort(self, name: str) -> None:
        """Abort a request that has not ended."""
        request = self.rerun.timeline.state().requests.get(int(name))
        if request is not None and request.status != FINISHED:
            self._called("abort", self.rerun.abort(int(name)))

    def reset(self) -> None:
        """Reset the prefix cache; do nothing while a request holds blocks."""
        self._called("reset", self.rerun.reset())

    def state(self) -> dict[str, Any]:
        """Return status and tables of the open requests, the free queue, and reference counts and cached blocks.

        An edition with a prefix tree has its nodes and its locks instead.
        """
        fold = self.rerun.timeline.state()
        requests = {
            str(i): [self._status(one), [list(table) for table in one.block_tables]]
            for i, one in fold.requests.items()
            if one.status != FINISHED
        }
        return {"requests": requests, "free_queue": list(fold.free_queue), **self._cache(fold)}

    def _cache(self, fold: Fold) -> dict[str, Any]:
        if self.rerun.scheduler.manager.pool.tree is None:
            cached = {block_id for ids in fold.prefix_map.values() for block_id in ids}
            return {"ref_counts": list(fold.ref_counts), "cached": sorted(cached)}
        nodes = fold.tree.states()
        return {
            "tree": [[node.node_id, node.parent_id, node.num_locks, list(node.block_ids)] for node in nodes],
            "holds": {str(i): node_id for i, node_id in fold.tree.holds.items()},
        }

    def _status(self, request: RequestFold) -> str:
        """Return the engine's name for a status: only vLLM has one for preempted requests."""
        return "waiting" if request.status == "preempted" and not self._is_vllm else request.status

    def _called(self, call: str, events: Sequence[ev.Event]) -> None:
        for event in events:
            self.rerun.mark(event)
            self._has_ended = self._has_ended or isinstance(event, ev.RequestFinished)
        self.after_call(call)


def expected_states(scope: EngineScope, wire: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the edition's state after each call of a workload and of the steps to its end."""
    return edition_run(scope, wire).states


class EditionRun(NamedTuple):
    """A workload on an edition: its state after each call, its events, and why it broke off, if it did."""

    states: list[dict[str, Any]]
    events: list[ev.Event]
    failure: str


def edition_run(
    scope: EngineScope, wire: dict[str, Any], on_state: Callable[[Fold], object] = lambda fold: None
) -> EditionRun:
    """Play a workload on the edition. on_state: gets each state."""
    engine, states, failure = EditionEngine(scope), list[dict[str, Any]](), ""

    def keep(call: str) -> None:
        states.append(engine.state())
        on_state(engine.rerun.timeline.state())

    engine.after_call = keep
    try:
        _play(engine, wire)
    except NotGrantedError as error:
        failure = str(error)
    return EditionRun(states, list(engine.rerun.timeline.events()), failure)


def _play(engine: EditionEngine, wire: dict[str, Any]) -> None:
    do = actions(engine)
    for what, *values in wire["operations"]:
        do[what](*values)
    for _ in range(NUM_STEPS):
        if engine.is_idle:
            break
        engine.step()
