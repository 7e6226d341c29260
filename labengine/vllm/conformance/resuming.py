"""Restore an edition's scheduler to the state at a recording's start: pool, map, queues and requests."""

from __future__ import annotations

from labengine.core.block_pool import BlockPool
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import Scheduler
from labengine.record.fold import Fold
from labengine.record.wording import readable
from labengine.vllm.conformance.known_hashes import KnownHashes
from labengine.vllm.conformance.settings import CannotJudgeError
from labengine.vllm.stream.late_start import LateStart
from labengine.vllm.stream.pieces import Piece


def late_start_of(piece: Piece, *, has_drafts: bool) -> LateStart | None:
    """Return the data needed to judge a late recording; None for one that begins with an empty engine.

    Raises CannotJudgeError if the keyframe lacks data on which decisions depend.
    """
    if not piece.is_late:
        return None
    _, first, _ = piece.timeline.kept()
    if piece.start is None:
        raise CannotJudgeError(
            "it does not begin with an empty engine, and its keyframe has no limits for its requests: record it with "
            "this release's tap"
        )
    if has_drafts:
        raise CannotJudgeError("it begins late, and no keyframe says which drafts are being judged")
    if any(group.keeps_states for group in first.groups):
        raise CannotJudgeError("it begins late, and no keyframe says which states its blocks hold")
    if first.pins or first.holding:
        raise CannotJudgeError("it begins late, with held blocks that are not in any table")
    if not _adds_up(piece.start, first):
        raise CannotJudgeError("it begins late, and the queues of its first keyframe do not match its requests")
    if unusual := next((one.unusual for one in piece.start.requests.values() if one.unusual), ""):
        raise CannotJudgeError(readable(unusual, 300))
    return piece.start


def _adds_up(start: LateStart, state: Fold) -> bool:
    """Return False if a request is in no queue or in two, or a queued one is unknown, as in a broken scheduler."""
    is_whole = all(len(one.num_cached) == len(state.groups) for one in start.requests.values())
    return is_whole and sorted((*start.running, *start.waiting)) == sorted(start.requests) == sorted(state.requests)


def restore_pool(pool: BlockPool, state: Fold, known: KnownHashes) -> None:
    """Set blocks, free queue and prefix map to a recorded state."""
    for block in pool.blocks:
        block.ref_count = state.ref_counts[block.block_id]
        block.keys = tuple((group, known.ours(group, theirs)) for group, theirs in state.block_keys[block.block_id])
        block.token_ids = state.block_tokens[block.block_id]
    pool.free_queue.take(len(pool.free_queue))
    pool.free_queue.append(list(state.free_queue))
    pool.prefix_map |= {(group, known.ours(group, theirs)): ids for (group, theirs), ids in state.prefix_map.items()}


def restore_request(scheduler: Scheduler, request: Request, state: Fold, start: LateStart) -> None:
    """Set a new request, with its scheduled but unbooked tokens, to a recorded state."""
    recorded, known = state.requests[request.request_id], start.requests[request.request_id]
    request.token_ids += recorded.token_ids[request.num_prompt_tokens :]
    request.num_computed_tokens, request.status = recorded.num_computed_tokens, RequestStatus(recorded.status)
    request.block_tables = [list(table) for table in recorded.block_tables]
    request.num_registered_blocks = list(known.num_cached)
    request.shared_prefix_boundary = known.shared_prefix_boundary
    scheduler.requests[request.request_id] = request
    scheduler.restore_unbooked(request, known.unbooked)


def restore_queues(scheduler: Scheduler, start: LateStart) -> None:
    """Queue the running and waiting requests, in their order."""
    scheduler.running += [scheduler.requests[number] for number in start.running]
    for number in start.waiting:
        scheduler.waiting.add_request(scheduler.requests[number])
