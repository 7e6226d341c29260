"""A keyframe's data besides the state: inputs of later calls, for a recording that begins there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from labengine.core.vllm.async_scheduler import Unbooked
from labengine.events import Exact
from labengine.record.files.shapes import shape_of

Links = tuple[tuple[Exact, bytes], ...]
"""Links of a request's hash chain in the prefix map: place and hash."""


class OpenRequest(NamedTuple):
    """The data that determine decisions about an unfinished request, besides the state."""

    max_tokens: int
    salt: str
    """A digest of its cache salt; empty without one."""
    arrival: float
    is_unread: bool
    """True if it must not read the prefix cache."""
    shared_prefix_boundary: int
    unusual: str
    """The reason that no other scheduler can follow it; empty if one can."""
    num_cached: tuple[int, ...]
    """Per group, the number of leading table entries whose hashes are registered, or never will be."""
    unbooked: Unbooked
    links: tuple[tuple[int, bytes], ...]


class LateStart(NamedTuple):
    """The unfinished requests at a recording's start. running, waiting: their order; any order for a priority queue."""

    requests: Mapping[int, OpenRequest]
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    document: Mapping[str, Any]
    """The complete data, unchanged."""


LINKS = shape_of(Links)

_Ids = tuple[Exact, ...]
_Row = tuple[Exact, Exact, str, float, bool, Exact, str, _Ids, tuple[Exact, Exact, Exact], Links]
_IDS, _ROWS = shape_of(_Ids), shape_of(tuple[_Row, ...])


def late_start_of(document: Mapping[str, Any]) -> LateStart | None:
    """Return a keyframe's data besides the state; None for an earlier tap's. Raises TypeError, ValueError."""
    if "calls" not in document:
        return None
    requests = {
        number: OpenRequest._make((*values, Unbooked(*unbooked), links))
        for number, *values, unbooked, links in _ROWS(document["calls"])
    }
    own = {name: document[name] for name in ("calls", "running", "waiting")}
    return LateStart(requests, _IDS(own["running"]), _IDS(own["waiting"]), own)
