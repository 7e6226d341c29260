"""The kinds of event rows in a stream: names and fields as in labengine.events. The header carries this table."""

from __future__ import annotations

KINDS: tuple[tuple[str, ...], ...] = (
    ("StepStarted", "step"),
    ("StepEnded", "step"),
    ("RequestAdded", "request_id", "token_ids", "max_tokens"),
    ("PrefixHit", "request_id", "num_tokens", "block_ids"),
    ("RequestScheduled", "request_id", "start", "num_tokens", "is_prefill", "status"),
    ("RequestPreempted", "request_id"),
    ("RequestFinished", "request_id", "reason"),
    ("PrefixCacheReset",),
    ("BlockEvicted", "block_id", "reason"),
    ("BlockAllocated", "block_id", "request_id", "group", "index"),
    ("BlocksSkipped", "request_id", "group", "num_blocks"),
    ("BlockTouched", "block_id", "request_id", "group", "index", "ref_count"),
    ("BlockCached", "block_id", "request_id", "group", "index", "block_hash", "mapped", "is_full"),
    ("BlockFreed", "block_id", "request_id", "group", "index", "ref_count", "queue_end", "reason"),
    ("ForwardRan", "num_requests", "num_tokens"),
    ("TokensComputed", "request_id", "num_computed_tokens"),
    ("TokenSampled", "request_id", "token_id", "position"),
)
"""SlotsWritten is left out: the reader derives it from the tables and from RequestScheduled."""

(
    STEP_STARTED,
    STEP_ENDED,
    ADDED,
    HIT,
    SCHEDULED,
    PREEMPTED,
    FINISHED,
    RESET,
    EVICTED,
    ALLOCATED,
    SKIPPED,
    TOUCHED,
    CACHED,
    FREED,
    FORWARD_RAN,
    COMPUTED,
    SAMPLED,
) = range(len(KINDS))
