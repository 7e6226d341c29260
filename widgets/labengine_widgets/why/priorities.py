"""Priorities in answers: which requests are more urgent than another, and which less. Smaller is more urgent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from labengine.record.fold import Fold
from labengine.record.wording import listed, request_name


def are_in_use(state: Fold) -> bool:
    """Return True if some request has a priority: where the waiting queue takes no notice of them, all have 0."""
    return any(request.priority for request in state.requests.values())


def names_of(state: Fold, request_ids: Iterable[int]) -> str:
    """Return the names of requests, with their priorities where these are in use."""
    if not are_in_use(state):
        return listed(map(request_name, request_ids))
    return listed(f"{request_name(i)} (priority {state.requests[i].priority})" for i in request_ids)


def less_urgent_running(state: Fold, request_id: int) -> str:
    """Return a sentence about the running requests that are less urgent than one that waits; empty without any."""
    limit = state.requests[request_id].priority
    found = [i for i, request in state.requests.items() if request.status == "running" and request.priority > limit]
    if not found:
        return ""
    are = "is less urgent, and goes" if len(found) == 1 else "are less urgent, and go"
    return f" {names_of(state, found)} {are} on: a running request gives way to one that runs, not to one that waits."


def why_least_urgent(state: Fold, victim: int, running: Sequence[int]) -> str | None:
    """Explain by priorities why this one of the running requests gave way; None if they do not explain it."""
    others = [i for i in running if i != victim]
    own, most = state.requests[victim].priority, max(state.requests[i].priority for i in others)
    if not are_in_use(state) or own < most:
        return None
    among = f"of the running requests (the others: {names_of(state, others)})"
    name = names_of(state, [victim])
    if own > most:
        return f"{name} was the least urgent {among}."
    if victim < max(i for i in running if state.requests[i].priority == own):
        return None
    return f"{name} was one of the least urgent {among}; of equal ones the last to arrive gives way."
