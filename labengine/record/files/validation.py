"""Validation of a recording: every row and every keyframe is checked once, from beginning to end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from labengine.record.files import columns as c
from labengine.record.files.codec import KINDS, fold_of
from labengine.record.files.columns import PoolSize
from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import TraceError, parsed
from labengine.record.files.recorded_timeline import RecordedTimeline
from labengine.record.files.segments import NO_KEYFRAME, Segment
from labengine.record.files.sequence import SLACK, SequenceCheck
from labengine.record.fold import Fold

_EVENT_FIELDS: dict[str, c.Check] = {
    **dict.fromkeys(("edition", "error", "lab", "message", "method", "reason", "rule"), c.texts),
    **dict.fromkeys(("replaces", "decided", "instead_of"), c.texts),
    **dict.fromkeys(("request_id", "step", "start", "position", "max_tokens", "num_tokens", "num_requests"), c.numbers),
    **dict.fromkeys(("num_computed_tokens", "num_generated", "num_blocks", "index", "into_index", "end"), c.numbers),
    **dict.fromkeys(("num_drafts", "num_accepted", "num_rejected", "num_beams", "other_request_id"), c.numbers),
    **dict.fromkeys(
        ("is_prefill", "is_loading", "is_full", "is_fork", "is_pinned", "is_skipped", "holds_blocks"), c.flags
    ),
    **dict.fromkeys(("block_id", "into_block_id"), c.blocks),
    "priority": c.ints(-c.MAX_NUMBER, c.MAX_NUMBER),
    "from_request_id": c.optional(c.numbers),
    "images": c.lists(c.records(c.numbers, c.numbers, c.texts)),
    "groups": c.group_rows,
    "null_block": c.ints(-1, c.MAX_NUMBER),
    "token_ids": c.token_ids,
    "token_id": c.token_id,
    "block_ids": c.lists(c.lists(c.blocks_or_null)),
    "status": c.one_of("waiting", "running"),
    "transfers": c.transfers,
    **dict.fromkeys(("added", "dropped"), c.hash_keys),
    "pinned": c.pins,
    "fact": c.lists(c.texts),
    "misnamed": c.lists(c.records(c.blocks, c.groups, c.hashes, c.hashes)),
    "group": c.groups,
    "ref_count": c.ints(-c.MAX_NUMBER, c.MAX_NUMBER),
    "block_hash": c.hashes,
    "mapped": c.lists(c.blocks),
    "queue_end": c.one_of("head", "tail", None),
    "runs": c.lists(c.records(c.blocks_or_null, c.numbers, c.numbers)),
    "request_ids": c.lists(c.ints(-c.MAX_EXACT, c.MAX_EXACT)),
    "first_event": c.optional(c.ints(-c.MAX_EXACT, c.MAX_EXACT)),
    "DecisionDiffered.request_id": c.ints(-1, c.MAX_NUMBER),
    "FreeDeferred.block_ids": c.lists(c.blocks),
    "ViolationFound.block_ids": c.lists(c.ints(-c.MAX_EXACT, c.MAX_EXACT)),
}
"""By the field's name, or by kind and field where one kind differs."""

_CHECKS = [[_EVENT_FIELDS.get(f"{kind}.{name}") or _EVENT_FIELDS[name] for name in names] for kind, *names in KINDS]


def check_columns(rows: Sequence[Sequence[Any]], pool: c.PoolSize) -> None:
    """Check rows numbered by codec.KINDS. Raises ValueError or TypeError for wrong types or bounds."""
    numbers = [row[0] for row in rows]
    c.ints(0, len(KINDS) - 1)(numbers, pool)
    by_kind: dict[int, list[Sequence[Any]]] = defaultdict(list)
    for number, row in zip(numbers, rows, strict=True):
        by_kind[number].append(row)
    for number, alike in by_kind.items():
        name, *fields = KINDS[number]
        try:
            _, *values = zip(*alike, strict=True)
            for check, column in zip(_CHECKS[number], values, strict=True):
                check(column, pool)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} with {', '.join(fields) or 'no fields'}: {error}") from None


_STATUS = c.one_of("waiting", "running", "preempted", "finished")

_KEYFRAME_FIELDS: dict[str, c.Check] = {
    "step": c.numbers,
    "groups": c.group_rows,
    "null_block": c.blocks_or_null,
    "requests": c.lists(c.records(c.numbers, _STATUS, c.token_ids, c.numbers, c.numbers, c.tables)),
    "priorities": c.lists(c.records(c.numbers, c.ints(-c.MAX_NUMBER, c.MAX_NUMBER))),
    "ref_counts": c.lists(c.ints(-c.MAX_NUMBER, c.MAX_NUMBER)),
    "block_keys": c.lists(c.records(c.blocks, c.hash_keys)),
    "block_tokens": c.lists(c.records(c.blocks, c.token_ids)),
    "free_queue": c.lists(c.blocks),
    "prefix_map": c.lists(c.records(c.groups, c.hashes, c.lists(c.blocks))),
    "pins": c.lists(c.records(c.blocks, c.numbers)),
    "holding": c.lists(c.numbers),
    "drafts": c.lists(c.records(c.numbers, c.token_ids)),
}
_ADDED_LATER = ("priorities", "pins", "holding", "drafts")
"""What keyframes of earlier releases lack."""


def check_keyframe(document: Any) -> None:
    """Raise TypeError, ValueError or LookupError for a document that is no state or has ids out of bounds."""
    pool = c.PoolSize(len(document["ref_counts"]), len(document["groups"]))
    for name, check in _KEYFRAME_FIELDS.items():
        check([document.get(name, []) if name in _ADDED_LATER else document[name]], pool)
    queue, requests = document["free_queue"], document["requests"]
    if len(set(queue)) < len(queue) or document["null_block"] in queue:
        raise ValueError("a block is in the free queue that cannot be there, or twice")
    if len({request[0] for request in requests}) < len(requests):
        raise ValueError("a request is there twice")
    for request_id, _, tokens, num_prompt, num_computed, tables in requests:
        is_within = max(num_computed, *map(len, tables), 0) <= len(tokens) + SLACK
        if len(tables) != pool.num_groups or num_prompt > len(tokens) or not is_within:
            raise ValueError(f"request {request_id} does not add up")


# -- complete recordings -----------------------------------------------------------------------------------------------


_NAMES = [name for name, *_ in KINDS]
_STARTED, _ENGINE = _NAMES.index("StepStarted"), _NAMES.index("EngineStarted")


def validate(timeline: RecordedTimeline, limits: Limits) -> None:
    """Raise TraceError, naming the first wrong place, for a recording that cannot be shown or exported."""
    state = _keyframe(timeline.segments[0].keyframe, limits)
    pool, sequence = PoolSize(len(state.ref_counts), len(state.groups)), SequenceCheck(state)
    for number, segment in enumerate(timeline.segments):
        limits.refuse_late()
        if number and segment.keyframe != NO_KEYFRAME:
            _compare(_keyframe(segment.keyframe, limits), sequence, pool, segment.start)
        limits.refuse_line(segment.rows)
        rows = timeline.rows_of(number)
        try:
            if not number and rows:
                pool = _pool(rows[0], pool, limits)
            check_columns(rows, pool)
            step = sequence.step
            sequence.follow(rows)
            _check_steps(segment, [row[1] for row in rows if row[0] == _STARTED] or [step])
        except (LookupError, TypeError, ValueError) as error:
            where = f"among events {segment.start} to {segment.end}"
            raise TraceError(f"{limits.path} does not add up {where} ({error}): get it again") from None
    _compare(_keyframe(timeline.last_keyframe, limits), sequence, pool, timeline.end)


def _keyframe(line: bytes, limits: Limits) -> Fold:
    limits.refuse_line(line)
    document = parsed(line)
    try:
        limits.refuse_pool(len(document["ref_counts"]))
        check_keyframe(document)
    except TraceError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(f"{limits.path} has a keyframe that is none ({error}): get it again") from None
    return fold_of(document)


def _pool(row: Sequence[Any], pool: PoolSize, limits: Limits) -> PoolSize:
    """Return the pool of the engine that a recording begins with, else the keyframe's."""
    if row[0] != _ENGINE:
        return pool
    check_columns([row], pool)
    limits.refuse_pool(row[1])
    return PoolSize(row[1], len(row[2]))


def _compare(state: Fold, sequence: SequenceCheck, pool: PoolSize, moment: int) -> None:
    if PoolSize(len(state.ref_counts), len(state.groups)) != pool or not sequence.matches(state):
        raise TraceError(f"the trace contradicts itself: its events and its keyframe at {moment} differ: get it again")


def _check_steps(segment: Segment, steps: Sequence[int]) -> None:
    if (segment.first_step, segment.last_step) != (min(steps), max(steps)):
        raise ValueError(f"the header has steps {segment.first_step} to {segment.last_step}")
