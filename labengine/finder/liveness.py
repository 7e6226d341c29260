"""Liveness: whether an engine that only takes steps finishes its work."""

from __future__ import annotations

from labengine.core.request import RequestStatus
from labengine.engine.engine import Engine
from labengine.finder.limits import NUM_STEPS
from labengine.finder.operations import TakeStep, Workload
from labengine.finder.sandbox import Finding, Sandbox


def drain(sandbox: Sandbox, ending: set[int] | None = None, num_before: int = 0) -> tuple[Finding | None, Workload]:
    """Take steps until the engine is idle; return the finding, if any, and the steps taken.

    An engine's decisions depend on its state alone, so a state that recurs once recurs forever: a cycle of one step is
    a deadlock, a longer one a livelock. A request in no queue when no work is left is a finding, too.
    ending: states that are known to reach the end; the states met are added. num_before: operations before the first
    step, from which the sandbox's `on_begin` numbers the steps.
    """
    known: set[int] = set() if ending is None else ending
    steps: list[TakeStep] = []
    seen: dict[int, int] = {}
    while not sandbox.engine.scheduler.is_idle:
        key = sandbox.key()
        if key in known:
            break
        if key in seen or len(steps) >= NUM_STEPS:
            return Finding("liveness", _cycle(sandbox, len(steps) - seen.get(key, 0)), "liveness"), tuple(steps)
        seen[key] = len(steps)
        steps.append(TakeStep())
        sandbox.on_begin(num_before + len(steps))
        finding = sandbox.do(steps[-1])
        if finding is not None:
            return finding, tuple(steps)
    if sandbox.engine.scheduler.is_idle and (left := _unfinished(sandbox.engine)):
        return Finding("liveness", f"no request waits or runs, yet {left} forever", "liveness"), tuple(steps)
    known.update(seen)
    return None, tuple(steps)


def _cycle(sandbox: Sandbox, length: int) -> str:
    """Describe the cycle: the requests that never finish, and the free blocks."""
    engine = sandbox.engine
    if length == 1:
        return f"a step changes nothing, so no later step can: {_waiting(engine)}"
    return f"the state recurs every {length} steps, forever: {_waiting(engine)}"


def _waiting(engine: Engine) -> str:
    return f"{_unfinished(engine)}; {engine.scheduler.manager.pool.num_free} blocks are free"


def _unfinished(engine: Engine) -> str:
    """Return the unfinished requests and their blocks as text; empty without any."""
    lines = []
    for request_id, request in engine.requests.items():
        if request.status is not RequestStatus.FINISHED:
            held = request.num_table_entries
            loads = " and waits for a load" if request.is_loading else ""
            lines.append(f"request {request_id} is {request.status} with {held} block table entries{loads}")
    return "; ".join(lines)
