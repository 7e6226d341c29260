"""What a keyframe says besides the state: what the calls depend on that a recording which begins there has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from labengine.core.vllm.async_scheduler import Unbooked
from labengine.events import Exact
from labengine.record.files.shapes import shape_of
from labengine.record.fold import Fold

Links = tuple[tuple[Exact, bytes], ...]
"""Links of a request's hash chain that the prefix map has: place and hash."""


class OpenRequest(NamedTuple):
    """What decides about one unfinished request, besides the state."""

    max_tokens: int
    salt: str
    """A digest of its cache salt; empty without one."""
    arrival: float
    is_unread: bool
    """True if it is not to read the prefix cache."""
    shared_prefix_boundary: int
    unusual: str
    """Why no other scheduler can follow it; empty if one can."""
    num_cached: tuple[int, ...]
    """Per group: leading table entries whose hashes are registered, or never will be."""
    unbooked: Unbooked
    links: tuple[tuple[int, bytes], ...]


class LateStart(NamedTuple):
    """The unfinished requests at a recording's start. running, waiting: their order; of a priority queue any."""

    requests: Mapping[int, OpenRequest]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    document: Mapping[str, Any]
    """All of it, as it came."""


LINKS = shape_of(Links)

_Ids = tuple[Exact, ...]
_Row = tuple[Exact, Exact, str, float, bool, Exact, str, _Ids, tuple[Exact, Exact, Exact], Links]
_IDS, _ROWS = shape_of(_Ids), shape_of(tuple[_Row, ...])


def late_start_of(document: Mapping[str, Any], state: Fold) -> LateStart | None:
    """Return what a keyframe says besides the state; None for one of an earlier tap. Raises TypeError, ValueError."""
    if "calls" not in document:
        return None
    requests = {
        number: OpenRequest._make((*values, Unbooked(*unbooked), links))
        for number, *values, unbooked, links in _ROWS(document["calls"])
    }
    own = {name: document[name] for name in ("calls", "running", "waiting")}
    start = LateStart(requests, _IDS(own["running"]), _IDS(own["waiting"]), own)
    queued = (*start.running, *start.waiting)
    if requests.keys() != state.requests.keys() or len({*queued}) < len(queued) or not {*queued} <= requests.keys():
        raise ValueError("its queues and its requests are not the same requests")
    if any(len(one.num_cached) != len(state.groups) for one in requests.values()):
        raise ValueError("a request has other groups than its engine")
    return start
