"""Liveness: whether an engine that gets nothing but steps comes to an end."""

from __future__ import annotations

from labengine.core.request import RequestStatus
from labengine.engine.engine import Engine
from labengine.finder.limits import NUM_STEPS
from labengine.finder.operations import TakeStep, Workload
from labengine.finder.sandbox import Finding, Sandbox


def drain(sandbox: Sandbox, ending: set[int] | None = None, num_before: int = 0) -> tuple[Finding | None, Workload]:
    """Take steps until the engine is idle; return what went wrong, and the steps taken.

    An engine decides by its state alone. A state that comes back after some steps comes back for ever: a cycle of one
    step is a deadlock, a longer one a livelock. So is a request in no queue, once nothing is left to do.
    ending: states that are known to come to an end; those met are added. num_before: operations before the first step,
    by which the sandbox's `on_begin` numbers the steps.
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
        return Finding("liveness", f"nothing waits and nothing runs, and {left} for ever", "liveness"), tuple(steps)
    known.update(seen)
    return None, tuple(steps)


def _cycle(sandbox: Sandbox, length: int) -> str:
    """Return the cycle in words: which requests get on, and which never do."""
    engine = sandbox.engine
    if length == 1:
        return f"nothing changes in a step, and in none after it: {_waiting(engine)}"
    return f"the state comes back after {length} steps, and so for ever: {_waiting(engine)}"


def _waiting(engine: Engine) -> str:
    return f"{_unfinished(engine)}; {engine.scheduler.manager.pool.num_free} blocks are free"


def _unfinished(engine: Engine) -> str:
    """Return the requests that have not finished, and what they hold; empty for none."""
    lines = []
    for request_id, request in engine.requests.items():
        if request.status is not RequestStatus.FINISHED:
            held = request.num_table_entries
            loads = " and waits for a load" if request.is_loading else ""
            lines.append(f"request {request_id} is {request.status} with {held} block table entries{loads}")
    return "; ".join(lines)
