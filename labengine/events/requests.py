"""Events of a request between its prompt and its end."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.events.event import Event, InVllm, methods
from labengine.events.fields import BlockIds, Image, RequestId, ScheduledStatus, Signed, TokenIds, Transfer

_FREED = "KVCacheManager.free KVCacheGroup.freeing_order KVCacheGroup.free KVCacheGroup.release"


@dataclass(frozen=True, slots=True)
class RequestAdded(Event):
    """A request joined the waiting queue; it holds no blocks."""

    request_id: RequestId
    token_ids: TokenIds
    max_tokens: int
    num_generated: int = 0
    """Number of its last tokens that count as generated: it continues where another request stopped."""
    from_request_id: int | None = None
    """The request whose tokens it continues. It waits until they are computed, then forks."""
    priority: Signed = 0
    """Smaller is more urgent; always 0 if requests are served in order of arrival."""
    num_beams: int = 1
    """Number of requests in its beam search, the first of which has no from_request_id; 1 without a search."""
    images: tuple[Image, ...] = ()
    """(position, length, identifier) of each image behind placeholder tokens of the prompt, in order."""

    topic = "request"
    decided_by = {
        "": methods(
            "WaitingQueue.add_request WaitingQueue.order WaitingQueue.priority Scheduler.add Scheduler.join",
            "Scheduler.branch Forks.join Forks.branch Scheduler.accept",
        ),
    }
    in_vllm = {"": InVllm("scheduler", "add_request", "A request joins the waiting queue.")}


@dataclass(frozen=True, slots=True)
class PrefixHit(Event):
    """A request looked up its prompt at admission; its table is about to start with the hit blocks."""

    request_id: RequestId
    num_tokens: int
    """Computed tokens found in the cache, now the request's num_computed_tokens; 0 is a miss."""
    block_ids: BlockIds
    """The hit blocks per group, in table order, null where the window needs none; not yet touched."""
    is_skipped: bool = False
    """True: the request opted out of reading the cache, so nothing was looked up."""

    topic = "request"
    decided_by = {
        "": methods(
            "PrefixTree.find PrefixTree.match PrefixTree.child_of PrefixTree.num_equal",
            "KVCacheGroup.find_hit KVCacheGroup.find_partial_hit KVCacheGroup.cached_up_to",
            "KVCacheGroup.has_partial_hits KVCacheGroup.hit_unit SlidingWindowGroup.find_hit",
            "KVCacheGroup.drops_last_block KVCacheGroup.find_dropped_hit SlidingWindowGroup.find_dropped_hit",
            "KVCacheManager.longest_hit PrefixLookup.longest_hit KVCacheManager.find_prefix KVCacheGroup.cached_run",
            "KVCacheGroup.cached_block KVCacheGroup.has_every_shorter_hit SlidingWindowGroup.num_blocks_for_hit",
            "SlidingWindowGroup.window KVCacheGroup.block_hashes MergePolicy.is_equal HashChain.root HashChain.keyed",
            "HashChain.link KVCacheManager.extend_hashes KVCacheManager.begin_step KVCacheGroup.begin_step",
            "KVCacheManager.admit",
        ),
    }
    in_vllm = {
        "": InVllm(
            "manager", "get_computed_blocks", "The longest prefix whose blocks are cached in every group is reused."
        ),
        "order": InVllm("waiting", "peek_request", "The first request in the waiting queue is admitted next."),
    }


@dataclass(frozen=True, slots=True)
class SharedPrefixFound(Event):
    """In a look-up some groups hit a longer prefix than others, which had dropped theirs; they will cache it again.

    A chunk of a request with states ends at that position, and sparse retention keeps the blocks a hit there needs.
    """

    request_id: RequestId
    num_tokens: int
    """0 when a later look-up finds that all groups agree."""

    topic = "request"
    decided_by = {"": ("PrefixLookup.longest_hit", "KVCacheManager.longest_hit", "KVCacheManager.note_shared_prefix")}


@dataclass(frozen=True, slots=True)
class RequestForked(Event):
    """A request continues from another's KV: its table is about to name the same blocks, and it runs from now on.

    Source: PagedAttention (SOSP 2023), section 4.4. The last block may be partly filled: the first request that writes
    to it while it is shared gets a copy (BlockCopied).
    """

    request_id: RequestId
    from_request_id: int
    num_tokens: int
    """Computed tokens that it shares, now the request's num_computed_tokens."""
    block_ids: BlockIds
    """The shared blocks per group, in table order, null where the window needs none; not yet touched."""

    topic = "request"
    decided_by = {
        "": methods(
            "Forks.fork KVCacheGroup.num_shared_tokens KVCacheGroup.shared_blocks Forks.of_batch Forks.start",
            "Forks.join Forks.branch Scheduler.join Scheduler.branch KVCacheManager.fork",
        ),
    }


@dataclass(frozen=True, slots=True)
class BeamReplaced(Event):
    """A dropped beam replaced its generated tokens with those of another beam in its search.

    It holds no blocks at this moment; if the other beam does, a RequestForked follows.
    """

    request_id: RequestId
    token_ids: TokenIds
    """All its generated tokens from now on; the prompt stays."""
    from_request_id: int | None = None
    """The beam whose tokens it takes; None at the end of a search, when each request gets one of the best texts."""

    topic = "request"
    decided_by = {
        "": methods(
            "BeamSearches.places BeamSearches.policy BeamSearches.decide BeamSearches.decide_due",
            "BeamSearches.end_search BeamSearches.num_likeliest BeamSearches.note_likeliest BeamSearches.search_of",
            "BeamSearches.replace_beam BeamSearches.take_tokens",
        ),
    }


@dataclass(frozen=True, slots=True)
class RequestScheduled(Event):
    """A request got its blocks and its share of this step: tokens [start, start + num_tokens) will be computed."""

    request_id: RequestId
    start: int
    num_tokens: int
    is_prefill: bool
    status: ScheduledStatus
    """waiting or running: a prefill-first engine keeps a partly prefilled request waiting."""
    num_drafts: int = 0
    """Number of guesses at the end of these tokens. Further guesses of the request are dropped."""

    topic = "request"
    decided_by = {
        "": methods(
            "Scheduler.schedule Scheduler.next_waiting Forks.has_seats Scheduler.skips Scheduler.longest_chunk",
            "Scheduler.clipped KVCacheGroup.chunk_end StateGroup.chunk_unit StateGroup.stops StateGroup.last_hit_end",
            "StateGroup.leaves_checkpoint StateGroup.is_reachable StateGroup.num_own_blocks",
            "Scheduler.admit WaitingQueue.remove_request KVCacheManager.can_admit KVCacheManager.has_room",
            "Scheduler.may_admit Scheduler.chunked Scheduler.fits Scheduler.num_left Scheduler.num_expected",
            "Scheduler.first_new_token_ratio Scheduler.smallest_share Scheduler.num_decay_steps",
            "Scheduler.ratio_after_retraction Scheduler.rest_if_idle Scheduler.most_new_tokens",
            "Scheduler.num_blocks Scheduler.in_whole_blocks",
            "Scheduler.num_to_come Scheduler.num_to_compute KVCacheGroup.num_newly_locked",
            "KVCacheGroup.num_blocks_to_admit KVCacheGroup.max_blocks_held SlidingWindowGroup.num_steps_in_flight",
            "KVCacheManager.num_blocks_needed KVCacheManager.needs_tokens_to_allocate BlockPool.num_free",
            "Scheduler.num_plannable Scheduler.num_known Drafts.num_affordable Drafts.fitting Scheduler.num_admitted",
            "Scheduler.budget_left Drafts.num_inputs KVCacheManager.has_blocks_for Scheduler.ahead_of",
            "Scheduler.plan",
        ),
    }
    in_vllm = {
        "": InVllm(
            "scheduler",
            "schedule",
            "Running requests come first, then waiting ones, while the token budget and the blocks last.",
        )
    }


@dataclass(frozen=True, slots=True)
class RequestPreempted(Event):
    """A request gave back all its blocks because blocks ran out, after a BlockFreed for each, and waits again."""

    request_id: RequestId

    topic = "trouble"
    decided_by = {
        "": methods(
            "Scheduler.choose_victim WaitingQueue.least_urgent WaitingQueue.order Scheduler.allocate_or_preempt",
            "Scheduler.has_blocks_to_decode Scheduler.num_retract_steps",
            "Scheduler.preempt Scheduler.requeue WaitingQueue.prepend_request ExternalLoads.give_up",
            "BeamSearches.holds BeamSearches.park BeamSearches.unpark BeamSearches.last_held",
            _FREED,
            "Scheduler.take_blocks",
        ),
    }
    in_vllm = {
        "": InVllm(
            "scheduler",
            "_preempt_request",
            "When blocks run out, a running request gives its blocks back: the last one, or by priority the least "
            "urgent one.",
        )
    }


@dataclass(frozen=True, slots=True)
class RequestFinished(Event):
    """A request ended; its blocks were freed just before, unless it holds them for a connector."""

    request_id: RequestId
    reason: str
    """stop, length, abort, or moved if it continues in another lab."""
    holds_blocks: bool = False
    """True: a connector or another lab still reads its blocks. They are freed just before RequestReleased."""

    topic = "request"
    decided_by = {
        "": methods("Scheduler.finish_reason", _FREED, "Scheduler.finish Scheduler.end"),
        "abort": methods(
            "Scheduler.abort Scheduler.ends_with BeamSearches.all_of BeamSearches.leave Forks.follow",
            "ExternalLoads.drop",
            _FREED,
            "Scheduler.finish Scheduler.end",
        ),
        "moved": ("HandOver.give", "Scheduler.end"),
    }
    in_vllm = {
        "": InVllm("scheduler", "_free_request", "A request that has ended gives its blocks back, last block first.")
    }


@dataclass(frozen=True, slots=True)
class RequestReleased(Event):
    """The reader of a finished request's blocks is done with them; they were freed just before."""

    request_id: RequestId

    topic = "request"
    decided_by = {"": ("HandOver.give",)}
    in_vllm = {
        "": InVllm(
            "scheduler", "_free_blocks", "When the connector is done, a request that has ended gives its blocks back."
        )
    }


@dataclass(frozen=True, slots=True)
class RequestHandedOver(Event):
    """K and V of a request's first num_tokens tokens were copied to another lab, where it continues.

    It finished just before, and holds its blocks until RequestReleased, which follows.
    """

    request_id: RequestId
    lab: str
    """Name of the other lab."""
    other_request_id: int
    """The request's id there."""
    num_tokens: int

    topic = "request"
    decided_by = {"": ("HandOver.give",)}


@dataclass(frozen=True, slots=True)
class RequestReceived(Event):
    """K and V of a request's first num_tokens tokens came from another lab into its blocks.

    Its prefix hit was already there and was not transferred. The tokens count as computed from the following
    TokensComputed on, and the request waits with its blocks for a step.
    """

    request_id: RequestId
    transfers: tuple[Transfer, ...]
    """The blocks that were written."""
    lab: str
    """Name of the other lab."""
    other_request_id: int
    """The request's id there."""
    num_tokens: int

    topic = "request"
    decided_by = {
        "": methods(
            "HandOver.blocks_to_fill HandOver.blocks_to_read KVCacheManager.allocate_computed",
            "KVCacheGroup.add_external HandOver.receive HandOver.start_received",
        ),
    }


@dataclass(frozen=True, slots=True)
class RequestForgotten(Event):
    """A finished request is no longer kept, because newer ones replaced it. This happens between steps."""

    request_id: RequestId

    topic = "request"
    decided_by = {"": ("Scheduler.forget_finished",)}
