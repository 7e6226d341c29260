"""The method that locked or unlocked a node of the prefix tree, according to the events around it."""

from __future__ import annotations

from collections.abc import Iterable

from labengine import events as ev

Numbered = tuple[int, ev.Event]
"""An event and its number in the recording."""


def lock_method(event: ev.Event, before: Iterable[Numbered], after: Iterable[Numbered]) -> str:
    """Return the seam that moved a lock in this event, such as "KVCacheGroup.free"; "" for any other event.

    before: the events before it, the newest first; after: those that follow.
    """
    match event:
        case ev.NodeLocked():
            return _locking(event.request_id, before)
        case ev.NodeUnlocked():
            return _unlocking(event.request_id, after)
    return ""


def _locking(request_id: int, before: Iterable[Numbered]) -> str:
    """Return "add_hit" or "add_shared" right after an admission or a fork; otherwise an insertion moved the lock."""
    for _, event in before:
        match event:
            case ev.PrefixHit(request_id=admitted) if admitted == request_id:
                return "KVCacheGroup.add_hit"
            case ev.RequestForked(request_id=forked) if forked == request_id:
                return "KVCacheGroup.add_shared"
            case ev.NodeSplit() | ev.NodesTouched():
                continue
        break
    return "KVCacheGroup.register"


def _unlocking(request_id: int, after: Iterable[Numbered]) -> str:
    """Return "register" if the lock only moves, "forget" if its node leaves the tree, else "free"."""
    for _, event in after:
        match event:
            case ev.NodeLocked(request_id=locking) if locking == request_id:
                return "KVCacheGroup.register"
            case ev.NodeEvicted(reason=reason) if reason != "reused":
                return "PrefixTree.forget"
            case ev.NodeUnlocked():
                continue
        break
    return "KVCacheGroup.free"
