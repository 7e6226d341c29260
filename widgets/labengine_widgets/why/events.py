"""The cause of an event, its cause in turn, and so on back to the request's arrival in the queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine import events as ev
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past
from labengine_widgets.why.prefix_tree import TreeEvent, values_of, walk_of
from labengine_widgets.words.phrases import phrase

MAX_LINKS = 12

Finder = Callable[[Past, int, Any], int | None]


def why_event(past: Past, number: int) -> Why:
    """Explain an event by the chain of causes that ends with it."""
    chain = [number]
    while len(chain) < MAX_LINKS and (cause := _next_cause(past, chain)) is not None:
        chain.append(cause)
    event = past.event(number)
    values = values_of(past, number, event) if isinstance(event, TreeEvent) else ""
    text = " ".join(filter(None, (_because(past, event, chain), values, _decided(past, event, chain))))
    return Why(f"Why did this happen: {phrase(event)[:-1]}?", text, past.links(*reversed(chain)))


def _decided(past: Past, event: ev.Event, chain: list[int]) -> str:
    """Return a sentence on the method that decided the event; for a violation, the event that caused it."""
    is_found = isinstance(event, ev.ViolationFound) and len(chain) > 1
    seam, reason = past.seam_at(chain[int(is_found)])
    return f"{seam} decided {'that' if is_found else 'it'}: {reason}" if seam and reason else ""


def _next_cause(past: Past, chain: list[int]) -> int | None:
    """Return the cause of the chain's last event; for a hit that shared a block, that block's registration."""
    if len(chain) > 1 and isinstance(past.event(chain[-1]), ev.PrefixHit):
        shared = past.event(chain[-2])
        if isinstance(shared, ev.BlockTouched):
            registered = _last(past, chain[-1], ev.BlockCached, block_id=shared.block_id)
            if registered is not None:
                return registered
    return cause_of(past, chain[-1])


def cause_of(past: Past, number: int) -> int | None:
    """Return the number of the event that caused this one; None where the recording has no cause."""
    event = past.event(number)
    finder = _CAUSES.get(type(event))
    cause = finder(past, number, event) if finder is not None else None
    return cause if cause is None or cause < number else None


def _because(past: Past, event: ev.Event, chain: list[int]) -> str:
    if len(chain) == 1:
        begin = "" if past.is_complete else f", which begins with event {past.first},"
        return ev.entry_of(_UNCAUSED, event) or f"Nothing in the recording{begin} caused it."
    return f"Because of event {chain[1]}: {past.link(chain[1]).sentence}"


_UNCAUSED = {
    "EngineStarted": "An engine was created or reset.",
    "StepStarted": "A step was requested, or the engine was running by itself.",
    "RequestAdded": "A prompt was added.",
    "RequestFinished:abort": "It was aborted.",
    "RequestFinished:moved": "It was handed over to another lab.",
    "BlockPinned": "A connector, or another part outside the scheduler, took the reference.",
    "PrefixCacheReset": "A reset was requested while no request held a block.",
}


# -- finding -----------------------------------------------------------------------------------------------------------


def _last(past: Past, before: int, *kinds: type[ev.Event], **fields: Any) -> int | None:
    found = past.last(*kinds, before=before, **fields)
    return None if found is None else found[0]


def _next(past: Past, after: int, *kinds: type[ev.Event], **fields: Any) -> int | None:
    """Return the next event of these kinds and fields, if it is among the next 512 or so."""
    for number, event in past.forwards(after + 1, min(past.timeline.end, after + 512)):
        if isinstance(event, kinds) and all(getattr(event, name) == value for name, value in fields.items()):
            return number
    return None


def _of_request(*kinds: type[ev.Event]) -> Finder:
    """Return a finder whose cause is the request's newest event of one of these kinds."""
    return lambda past, number, event: _last(past, number, *kinds, request_id=event.request_id)


def _step(past: Past, number: int, event: Any) -> int | None:
    return _last(past, number, ev.StepStarted)


def _allocated(past: Past, number: int, event: ev.BlockAllocated) -> int | None:
    """Return the preemption that freed the block, else the event after which the request needed a block."""
    for before, earlier in past.backwards(number):
        if isinstance(earlier, ev.RequestPreempted):
            return before if earlier.request_id != event.request_id else None
        if not isinstance(earlier, (ev.BlockAllocated, ev.BlockEvicted, ev.BlockFreed, ev.NodeEvicted)):
            break
    kinds = (ev.PrefixHit, ev.ExternalHit, ev.TokenSampled, ev.TokensComputed, ev.RequestAdded)
    return _last(past, number, *kinds, request_id=event.request_id)


def _evicted(past: Past, number: int, event: ev.BlockEvicted) -> int | None:
    """Return the cause of an eviction, by its reason; for a reused block, the cause of the allocation."""
    if event.reason == "reset":
        return None
    if event.reason == "distrusted":
        rolled = [n for n, e in _until_step(past, number) if isinstance(e, ev.StepRolledBack)]
        return rolled[0] if rolled else None
    if event.reason == "replaced":
        following = _next(past, number, ev.BlockCached, block_id=event.block_id)
        return None if following is None else _registered(past, number, past.event(following))
    before = past.event(number - 1) if number > past.first else None
    if isinstance(before, ev.NodeEvicted | ev.BlockEvicted):
        left = _last(past, number, ev.NodeEvicted)
        if left is not None and event.block_id in past.event(left).block_ids:  # type: ignore[attr-defined]  # its kind
            return left
    taken = _next(past, number, ev.BlockAllocated, block_id=event.block_id)
    return None if taken is None else _allocated(past, number, past.event(taken))  # type: ignore[arg-type]  # its kind


def _node_evicted(past: Past, number: int, event: ev.NodeEvicted) -> int | None:
    """Return the cause of the allocation that needed blocks; of a node that is not trusted, the rollback."""
    if event.reason != "reused":
        return _evicted(past, number, ev.BlockEvicted(-1, event.reason))
    taken = _next(past, number, ev.BlockAllocated)
    return None if taken is None else _allocated(past, number, past.event(taken))  # type: ignore[arg-type]  # its kind


def _until_step(past: Past, number: int) -> list[tuple[int, ev.Event]]:
    found = []
    for before, event in past.everything_backwards(number):
        found.append((before, event))
        if isinstance(event, (ev.StepStarted, ev.StepRolledBack)):
            break
    return found[::-1]


def _touched(past: Past, number: int, event: ev.BlockTouched) -> int | None:
    return _last(past, number, ev.RequestForked if event.is_fork else ev.PrefixHit, request_id=event.request_id)


def _forked(past: Past, number: int, event: ev.RequestForked) -> int | None:
    """Return the write by which the parent's last token was computed; for a branch its arrival, for a beam the change
    of its tokens.
    """
    added = _last(past, number, ev.RequestAdded, ev.BeamReplaced, request_id=event.request_id)
    if added == number - 1:
        return added
    return _last(past, number, ev.TokensComputed, request_id=event.from_request_id)


def _replaced(past: Past, number: int, event: ev.BeamReplaced) -> int | None:
    """Return the write by which the search's last beam was computed."""
    return _last(past, number, ev.TokensComputed)


def _copied(past: Past, number: int, event: ev.BlockCopied) -> int | None:
    """Return the newest fork that shared the block; for vLLM's copy, the hit that ended inside it."""
    if event.is_pinned:
        return _last(past, number, ev.PrefixHit, request_id=event.request_id)
    return _last(past, number, ev.BlockTouched, block_id=event.block_id, is_fork=True)


def _hit(past: Past, number: int, event: ev.PrefixHit) -> int | None:
    """Return the registration of a hit's last block; for a miss, the request's arrival."""
    ids = [i for group in event.block_ids for i in group]
    if event.num_tokens and ids:
        cached = _last(past, number, ev.BlockCached, block_id=ids[-1])
        if cached is not None or not past.is_complete:
            return cached
    return _last(past, number, ev.RequestAdded, ev.RequestPreempted, request_id=event.request_id)


def _registered(past: Past, number: int, event: Any) -> int | None:
    """Return the write of the block's last slot; where hashes are registered early, its allocation or load."""
    kinds = (ev.SlotsWritten, ev.StateAdvanced, ev.BlocksLoaded, ev.RequestReceived, ev.BlockAllocated)
    return _last(past, number, *kinds, request_id=event.request_id)


def _merged(past: Past, number: int, event: ev.BlockMerged) -> int | None:
    return _last(past, number, ev.BlockCached, block_id=event.into_block_id)


def _freed(past: Past, number: int, event: ev.BlockFreed) -> int | None:
    if event.reason in ev.ENTRY_REPLACED:
        return _last(past, number, ev.BlockMerged, ev.BlockCopied, block_id=event.block_id)
    if event.reason == "pruned":
        return _last(past, number, ev.TokensComputed)
    if event.reason == "window":
        return _last(past, number, ev.TokensComputed, ev.PrefixHit, request_id=event.request_id)
    if event.reason == "state":
        return _last(past, number, ev.StateCopied, block_id=event.block_id)
    if event.reason == "load_failed":
        return _last(past, number, ev.LoadFailed, request_id=event.request_id)
    if event.reason in ("finished", "aborted"):  # a request that held its blocks for a connector had ended before
        kinds = (ev.TokenSampled, ev.RequestFinished, ev.RequestScheduled, ev.RequestAdded)
        before = _last(past, number, *kinds, request_id=event.request_id)
        is_held = before is not None and isinstance(past.event(before), ev.RequestFinished)
        if is_held or event.reason == "aborted":
            return before if is_held else None
        return _last(past, number, ev.TokenSampled, request_id=event.request_id)
    return _preempted(past, number, event) if event.reason == "preempted" else None


def _preempted(past: Past, number: int, event: Any) -> int | None:
    """Return the failed load of the request; else the token for which another request needed a block."""
    for before, other in past.backwards(number):
        if isinstance(other, ev.LoadFailed) and other.request_id == event.request_id:
            return before
        if not isinstance(other, ev.BlockFreed):
            break
    for _, other in past.forwards(number + 1, min(past.timeline.end, number + 512)):
        if isinstance(other, (ev.BlockAllocated, ev.RequestScheduled)) and other.request_id != event.request_id:
            return _last(past, number, ev.TokenSampled, ev.RequestScheduled, request_id=other.request_id)
        if isinstance(other, (ev.StepEnded, ev.SlotsWritten, ev.StateAdvanced, ev.StepRolledBack)):
            break
    return _last(past, number, ev.TokenSampled, request_id=event.request_id)


def _finished(past: Past, number: int, event: ev.RequestFinished) -> int | None:
    is_from_outside = event.reason in ("abort", "moved")
    return None if is_from_outside else _last(past, number, ev.TokenSampled, request_id=event.request_id)


def _unpinned(past: Past, number: int, event: ev.BlockUnpinned) -> int | None:
    """Return the newest event that gave the block a reference that no table holds."""
    block_id = event.block_id
    for before, earlier in past.backwards(number):
        match earlier:
            case ev.BlockPinned() if earlier.block_id == block_id:
                return before
            case ev.FreeDeferred() if block_id in earlier.block_ids:
                return before
            case ev.BlockCopied(is_pinned=True) if block_id in (earlier.block_id, earlier.into_block_id):
                return before
    return None


def _violation(past: Past, number: int, event: ev.ViolationFound) -> int | None:
    first = event.first_event
    return first if first is not None and past.first <= first < number else None


def _differed(past: Past, number: int, event: ev.DecisionDiffered) -> int | None:
    """Return the newest event about the request; for a decision about none, the step's start."""
    if event.request_id < 0:
        return _step(past, number, event)
    kinds = (ev.RequestAdded, ev.RequestScheduled, ev.RequestPreempted, ev.TokensComputed, ev.TokenSampled)
    return _last(past, number, *kinds, request_id=event.request_id)


def _rolled_back(past: Past, number: int, event: ev.StepRolledBack) -> int | None:
    """Return the step's StepFailed; its StepStarted if the step was interrupted."""
    for before, earlier in past.everything_backwards(number):
        if isinstance(earlier, (ev.StepStarted, ev.StepFailed)):
            return before
    return None


_CAUSES: dict[type[ev.Event], Finder] = {
    ev.StepEnded: _step,
    ev.StepRolledBack: _rolled_back,
    ev.PrefixHit: _hit,
    ev.SharedPrefixFound: _of_request(ev.RequestAdded, ev.RequestPreempted),
    ev.RequestForked: _forked,
    ev.BeamReplaced: _replaced,
    ev.RequestScheduled: _of_request(
        ev.PrefixHit,
        ev.BlocksLoaded,
        ev.RequestReceived,
        ev.TokenSampled,
        ev.TokensComputed,
        ev.RequestAdded,
        ev.RequestPreempted,
    ),
    ev.RequestPreempted: _preempted,
    ev.RequestFinished: _finished,
    ev.RequestReleased: _of_request(ev.RequestHandedOver, ev.RequestFinished),
    ev.RequestHandedOver: _of_request(ev.RequestFinished),
    ev.RequestReceived: _of_request(ev.PrefixHit),
    ev.RequestForgotten: _of_request(ev.RequestFinished),
    ev.ExternalHit: _of_request(ev.PrefixHit),
    ev.BlocksLoaded: _of_request(ev.ExternalHit),
    ev.BlocksSaved: _of_request(ev.SlotsWritten),
    ev.LoadFailed: _of_request(ev.ExternalHit),
    ev.BlockEvicted: _evicted,
    ev.BlockAllocated: _allocated,
    ev.BlocksSkipped: _of_request(ev.PrefixHit, ev.RequestForked, ev.TokensComputed, ev.TokenSampled),
    ev.BlockTouched: _touched,
    ev.BlockCached: _registered,
    ev.BlockMerged: _merged,
    ev.BlockFreed: _freed,
    ev.FreeDeferred: _of_request(ev.TokenSampled, ev.RequestScheduled),
    ev.BlockUnpinned: _unpinned,
    ev.BlockCopied: _copied,
    ev.StateCopied: _of_request(ev.BlockAllocated, ev.DraftsJudged),
    ev.BlockMoved: _of_request(ev.DraftsJudged, ev.RequestScheduled),
    ev.HashesMoved: lambda past, number, event: _last(past, number, ev.BlockCached, block_id=event.block_id),
    ev.NodeInserted: _registered,
    ev.NodeSplit: lambda past, number, event: walk_of(past, number)[0],
    ev.NodesTouched: lambda past, number, event: walk_of(past, number)[0],
    ev.NodeLocked: _of_request(ev.PrefixHit, ev.RequestForked, ev.NodeInserted, ev.TokenSampled),
    ev.NodeUnlocked: _of_request(ev.TokenSampled, ev.NodeInserted),
    ev.NodeEvicted: _node_evicted,
    ev.SlotsWritten: _of_request(ev.RequestScheduled),
    ev.StateAdvanced: _of_request(ev.RequestScheduled),
    ev.ForwardRan: _step,
    ev.TokensComputed: _of_request(
        ev.SlotsWritten, ev.StateAdvanced, ev.BlocksLoaded, ev.RequestReceived, ev.LoadFailed
    ),
    ev.TokenSampled: _of_request(ev.SlotsWritten, ev.StateAdvanced, ev.RequestForked),
    ev.TokensDrafted: _of_request(ev.TokenSampled),
    ev.DraftsJudged: _of_request(ev.TokensDrafted),
    ev.ViolationFound: _violation,
    ev.DecisionDiffered: _differed,
}
