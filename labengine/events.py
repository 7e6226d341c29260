"""Everything that can happen in an engine: frozen records in the past tense, holding ids and ints only.

The stream is complete: folding it (fold.Fold) rebuilds the engine's snapshot after every operation. Blocks are named
by block_id, requests by request_id, a block's place in a request's table by (request_id, group, index).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar

QueueEnd = Literal["head", "tail"]
"""Where a freed block enters the free queue: the head is reused next, the tail last."""

FreeReason = Literal["finished", "aborted", "preempted", "merged", "copied", "pruned", "window", "state", "load_failed"]

EvictReason = Literal["reused", "replaced", "reset", "distrusted"]
"""Why a block's content was forgotten: it is given away; a longer prefix took its place; the cache was reset; it may
hold garbage."""

Transfer = tuple[int, int, int, bytes]
"""(group, table index, block_id, block hash): one block on its way to or from the external tier.

The hash is empty for a block that is filled in part: it stands for no complete content.
"""


UNKNOWN_TOKEN = -1
"""In place of a token id that a recording leaves out: it has the number of tokens alone."""


Topic = Literal["step", "request", "block", "model", "external tier", "trouble"]
"""What an event is about: views filter and colour by it."""


KindPhase = Literal["schedule", "forward", "sample", "none", "any", ""]
"""The phase that an event begins. "none": it ends the step; "any": it comes wherever it is noticed; "": it belongs to
the phase under way, and to the update once the forward pass is done. See record/phases.py."""


class InVllm(NamedTuple):
    """A method of vLLM's, and what it decides, in labengine's words."""

    owner: Literal["scheduler", "manager", "pool", "group", "state"]
    method: str
    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. The class attributes are facts about a kind; tables elsewhere are made from them.

    tools/event_types.py writes these facts for the browser and for the tap.
    """

    topic: ClassVar[Topic]
    phase: ClassVar[KindPhase] = ""
    """The phase of its step."""
    decided_by: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Per variant: labengine's method that usually decides, others that take part, and last the emitter. Empty for a
    kind that only a recording of another engine has."""
    in_vllm: ClassVar[Mapping[str, InVllm]] = {}
    """Per variant: what takes the decision in vLLM. Empty where the tap does not send the kind, or nobody decides."""

    @property
    def variant(self) -> str:
        """Its `reason`; "tail" or "fork" where BlockCached.is_full or BlockTouched.is_fork says so; "" for others."""
        return str(getattr(self, "reason", ""))


T = TypeVar("T")


def entry_of(table: Mapping[str, T], event: Event) -> T | None:
    """Return a table's entry for an event's variant ("BlockFreed:window"), else the one for its kind; None for none."""
    kind = type(event).__name__
    return table.get(f"{kind}:{event.variant}") or table.get(kind)


@dataclass(frozen=True, slots=True)
class EngineStarted(Event):
    """An engine (or a reset one) is empty and ready: all blocks are free, queued in order of their ids."""

    num_blocks: int
    groups: tuple[tuple[str, int, int | None], ...]
    """(kind, block_size, window) per KV-cache group."""
    edition: str
    null_block: int = -1
    """Pads a block table where a group holds no block. From 0 on it is a block of the pool that is never given away."""

    topic = "step"
    phase = "none"
    decided_by = {"": ("Parts.assemble", "Engine.__init__")}


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """A step opened; nothing is scheduled yet. Steps are numbered from 1."""

    step: int

    topic = "step"
    phase = "schedule"
    decided_by = {"": ("Engine._all_or_nothing",)}


@dataclass(frozen=True, slots=True)
class StepEnded(Event):
    """The step's update is complete: tokens appended, blocks cached, finished requests freed."""

    step: int

    topic = "step"
    phase = "none"
    decided_by = {"": ("Engine._all_or_nothing",)}


@dataclass(frozen=True, slots=True)
class StepFailed(Event):
    """An exception ended the step. Nothing is rolled back yet: the state is the one in which it was raised."""

    step: int
    error: str
    """Name of the exception's class."""
    message: str
    method: str
    """Class and method of the part that raised it, such as "BlockPool.release"."""

    topic = "trouble"
    phase = "any"
    decided_by = {"": ("Engine._all_or_nothing",)}


@dataclass(frozen=True, slots=True)
class StepRolledBack(Event):
    """The step failed or was interrupted; the state is again what it was just before its StepStarted."""

    step: int
    reason: str
    """Name of the exception that ended the step."""

    topic = "trouble"
    phase = "none"
    decided_by = {
        "": (
            "Scheduler.forget_written",
            "BlockPool.blocks_to_give_back",
            "FreeQueue.put_back",
            "FreeQueue.insert_after",
            "WaitingQueue.put_back_request",
            "Engine._roll_back",
        )
    }


@dataclass(frozen=True, slots=True)
class RequestAdded(Event):
    """A request joined the waiting queue; it holds no blocks."""

    request_id: int
    token_ids: tuple[int, ...]
    max_tokens: int
    num_generated: int = 0
    """Of its tokens, the last ones that count as generated: it goes on where another request stood."""
    from_request_id: int | None = None
    """The request whose tokens it continues. It waits until they are computed, and forks then."""
    priority: int = 0
    """Smaller is more urgent; 0 for all where they are served in the order in which they come."""
    num_beams: int = 1
    """Requests of its beam search, of which the first has no from_request_id; 1 for a request that is in none."""
    images: tuple[tuple[int, int, str], ...] = ()
    """(position, length, identifier) of each image behind placeholder tokens of the prompt, in order."""

    topic = "request"
    decided_by = {
        "": (
            "WaitingQueue.add_request",
            "WaitingQueue.order",
            "WaitingQueue.priority",
            "Scheduler.add",
            "Scheduler.join",
            "Scheduler.branch",
            "Scheduler.accept",
        )
    }
    in_vllm = {"": InVllm("scheduler", "add_request", "A request joins the waiting queue.")}


@dataclass(frozen=True, slots=True)
class PrefixHit(Event):
    """A request looked its prompt up at admission; its table is about to start with the hit blocks."""

    request_id: int
    num_tokens: int
    """Computed tokens found in the cache; 0 is a miss. The request's num_computed_tokens is now this."""
    block_ids: tuple[tuple[int, ...], ...]
    """The hit blocks per group, in table order, null where the window needs none. Not yet touched."""
    is_skipped: bool = False
    """True: the request asked not to read the cache, and nothing was looked up."""

    topic = "request"
    decided_by = {
        "": (
            "KVCacheGroup.find_hit",
            "KVCacheGroup.find_partial_hit",
            "KVCacheGroup.cached_up_to",
            "KVCacheGroup.has_partial_hits",
            "KVCacheGroup.hit_unit",
            "SlidingWindowGroup.find_hit",
            "KVCacheGroup.drops_last_block",
            "KVCacheGroup.find_dropped_hit",
            "SlidingWindowGroup.find_dropped_hit",
            "KVCacheManager.longest_hit",
            "PrefixLookup.longest_hit",
            "KVCacheManager.find_prefix",
            "KVCacheGroup.cached_run",
            "KVCacheGroup.cached_block",
            "KVCacheGroup.has_every_shorter_hit",
            "SlidingWindowGroup.num_blocks_for_hit",
            "SlidingWindowGroup.window",
            "KVCacheGroup.block_hashes",
            "MergePolicy.is_equal",
            "HashChain.root",
            "HashChain.keyed",
            "HashChain.link",
            "KVCacheManager.extend_hashes",
            "KVCacheManager.begin_step",
            "KVCacheGroup.begin_step",
            "KVCacheManager.admit",
        )
    }
    in_vllm = {
        "": InVllm(
            "manager", "get_computed_blocks", "The longest prefix whose blocks are cached in every group is reused."
        )
    }


@dataclass(frozen=True, slots=True)
class SharedPrefixFound(Event):
    """At a look-up some groups hit a longer prefix than others, which had dropped theirs: it is cached there again.

    A chunk of a request with states ends at that position, and a sparse retention keeps what a hit there needs.
    """

    request_id: int
    num_tokens: int
    """0 when a later look-up finds that all groups agree."""

    topic = "request"
    decided_by = {
        "": ("PrefixLookup.longest_hit", "KVCacheManager.longest_hit", "KVCacheManager.note_shared_prefix"),
    }


@dataclass(frozen=True, slots=True)
class RequestForked(Event):
    """A request goes on from another one's KV: its table is about to name the same blocks, and it runs from here on.

    Source: PagedAttention (SOSP 2023), section 4.4. The last block may be filled in part: who writes to it first while
    it is shared gets a copy (BlockCopied).
    """

    request_id: int
    from_request_id: int
    num_tokens: int
    """Computed tokens that it shares. The request's num_computed_tokens is now this."""
    block_ids: tuple[tuple[int, ...], ...]
    """The shared blocks per group, in table order, null where the window needs none. Not yet touched."""

    topic = "request"
    decided_by = {
        "": (
            "Scheduler.fork",
            "KVCacheGroup.num_shared_tokens",
            "KVCacheGroup.shared_blocks",
            "Scheduler.forks_of",
            "Scheduler.join",
            "Scheduler.branch",
            "KVCacheManager.fork",
        )
    }


@dataclass(frozen=True, slots=True)
class BeamReplaced(Event):
    """A beam that does not go on gave its generated tokens up for those of another beam of its search.

    It holds no blocks at this moment: if the other beam does, a RequestForked follows.
    """

    request_id: int
    token_ids: tuple[int, ...]
    """All generated tokens that it has from now on; the prompt stays."""
    from_request_id: int | None = None
    """The beam whose tokens it takes; None at the end of a search, when each request gets one of the best texts."""

    topic = "request"
    decided_by = {
        "": (
            "Scheduler.places",
            "Scheduler.beam_policy",
            "Scheduler.decide",
            "Scheduler.end_search",
            "Scheduler.num_likeliest",
            "Scheduler.note_likeliest",
            "Scheduler.replace_beam",
            "Scheduler.take_tokens",
        )
    }


@dataclass(frozen=True, slots=True)
class RequestScheduled(Event):
    """A request got its blocks and its share of this step: tokens [start, start + num_tokens) will be computed."""

    request_id: int
    start: int
    num_tokens: int
    is_prefill: bool
    status: str
    """waiting or running: a prefill-first engine keeps a partly prefilled request waiting."""
    num_drafts: int = 0
    """Of these tokens, the last ones that are guesses. Further guesses of the request are dropped."""

    topic = "request"
    decided_by = {
        "": (
            "Scheduler.schedule",
            "Scheduler.next_waiting",
            "Scheduler.has_seats",
            "Scheduler.skips",
            "Scheduler.longest_chunk",
            "Scheduler.clipped",
            "KVCacheGroup.chunk_end",
            "StateGroup.chunk_unit",
            "StateGroup.stops",
            "StateGroup.last_hit_end",
            "Scheduler.admit",
            "WaitingQueue.remove_request",
            "KVCacheManager.can_admit",
            "KVCacheManager.has_room",
            "KVCacheGroup.num_blocks_to_admit",
            "KVCacheGroup.max_blocks_held",
            "SlidingWindowGroup.num_steps_in_flight",
            "KVCacheManager.num_blocks_needed",
            "KVCacheManager.needs_tokens_to_allocate",
            "BlockPool.num_free",
            "Scheduler.num_plannable",
            "Scheduler.num_known",
            "Scheduler.num_affordable_drafts",
            "Scheduler.num_admitted",
            "Scheduler.budget_left",
            "Scheduler.num_draft_inputs",
            "KVCacheManager.has_blocks_for",
            "Scheduler.ahead_of",
            "Scheduler.next_position",
            "Scheduler.plan",
        )
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
    """A request gave all its blocks back because blocks ran out (a BlockFreed for each came before) and waits again."""

    request_id: int

    topic = "trouble"
    decided_by = {
        "": (
            "Scheduler.choose_victim",
            "WaitingQueue.least_urgent",
            "WaitingQueue.order",
            "Scheduler.allocate_or_preempt",
            "Scheduler.preempt",
            "Scheduler.requeue",
            "WaitingQueue.prepend_request",
            "ExternalLoads.give_up",
            "KVCacheManager.free",
            "KVCacheGroup.freeing_order",
            "KVCacheGroup.free",
            "KVCacheGroup.release",
            "Scheduler.take_blocks",
        )
    }
    in_vllm = {
        "": InVllm(
            "scheduler", "_preempt_request", "The request that runs last gives its blocks back when blocks run out."
        )
    }


@dataclass(frozen=True, slots=True)
class RequestFinished(Event):
    """A request ended; its blocks were freed just before, unless it holds them for a connector."""

    request_id: int
    reason: str
    """stop, length, abort, or moved: it goes on in another lab."""
    holds_blocks: bool = False
    """True: a connector or another lab still reads its blocks. They are freed just before RequestReleased."""

    topic = "request"
    decided_by = {
        "": (
            "Scheduler.finish_reason",
            "KVCacheManager.free",
            "KVCacheGroup.freeing_order",
            "KVCacheGroup.free",
            "KVCacheGroup.release",
            "Scheduler.finish",
            "Scheduler.end",
        ),
        "abort": (
            "Scheduler.abort",
            "Scheduler.ends_with",
            "ExternalLoads.drop",
            "KVCacheManager.free",
            "KVCacheGroup.freeing_order",
            "KVCacheGroup.free",
            "KVCacheGroup.release",
            "Scheduler.finish",
            "Scheduler.end",
        ),
        "moved": ("Scheduler.hand_over", "Scheduler.end"),
    }
    in_vllm = {
        "": InVllm("scheduler", "_free_request", "A request that has ended gives its blocks back, last block first.")
    }


@dataclass(frozen=True, slots=True)
class RequestReleased(Event):
    """The reader of a finished request's blocks is done with them, and they were freed just before."""

    request_id: int

    topic = "request"
    decided_by = {"": ("Scheduler.hand_over",)}
    in_vllm = {
        "": InVllm(
            "scheduler", "_free_blocks", "When the connector is done, a request that has ended gives its blocks back."
        )
    }


@dataclass(frozen=True, slots=True)
class RequestHandedOver(Event):
    """K and V of a request's first num_tokens tokens were copied to another lab, where it goes on.

    It has finished just before, and holds its blocks until RequestReleased, which follows.
    """

    request_id: int
    lab: str
    """Name of the other lab."""
    other_request_id: int
    """The request's id there."""
    num_tokens: int

    topic = "request"
    decided_by = {"": ("Scheduler.hand_over",)}


@dataclass(frozen=True, slots=True)
class RequestReceived(Event):
    """K and V of a request's first num_tokens tokens came from another lab into its blocks.

    Its prefix hit was there already, and did not have to come. The tokens count as computed from the TokensComputed
    that follows, and the request waits for a step with its blocks.
    """

    request_id: int
    transfers: tuple[Transfer, ...]
    """The blocks that were written."""
    lab: str
    """Name of the other lab."""
    other_request_id: int
    """The request's id there."""
    num_tokens: int

    topic = "request"
    decided_by = {
        "": (
            "Scheduler.blocks_to_fill",
            "Scheduler.blocks_to_read",
            "KVCacheManager.allocate_computed",
            "KVCacheGroup.add_external",
            "Scheduler.receive",
            "Scheduler.start_received",
        )
    }


@dataclass(frozen=True, slots=True)
class RequestForgotten(Event):
    """A finished request is no longer kept: newer ones have taken its place. It happens between steps."""

    request_id: int

    topic = "request"
    decided_by = {"": ("Scheduler.forget_finished",)}


@dataclass(frozen=True, slots=True)
class ExternalHit(Event):
    """The external tier holds the num_tokens tokens after the prefix hit. Blocks for them are about to be allocated.

    They count as computed at once, for the load precedes the forward pass. With is_loading they count only from
    BlocksLoaded on, and the request waits meanwhile.
    """

    request_id: int
    num_tokens: int
    is_loading: bool = False

    topic = "external tier"
    decided_by = {
        "": (
            "Scheduler.match_external",
            "ExternalLoads.match",
            "ExternalLoads.is_async",
            "Connector.get_num_new_matched_tokens",
            "Connector.has",
            "Connector.loads_are_async",
            "KVCacheGroup.tier_hashes",
            "KVCacheManager.admit",
        )
    }
    in_vllm = {
        "": InVllm(
            "manager",
            "allocate_slots",
            "Blocks are taken for the tokens that the connector holds behind the prefix hit.",
        )
    }


@dataclass(frozen=True, slots=True)
class BlocksLoaded(Event):
    """K and V came from the external tier into blocks of a request."""

    request_id: int
    transfers: tuple[Transfer, ...]

    topic = "external tier"
    decided_by = {
        "": (
            "KVCacheManager.external_blocks",
            "KVCacheManager.local_hits",
            "KVCacheManager.transfers",
            "KVCacheGroup.tier_hashes",
            "ExternalLoads.load",
            "ExternalLoads.wait_for",
            "ExternalLoads.take_loads",
            "ExternalLoads.blocks_of",
            "Connector.update_state_after_alloc",
            "Connector.start_load_kv",
            "Connector.get_finished",
            "Connector.wait",
            "Connector.cancel",
            "Scheduler.take_arrived",
            "Transfers.load",
        )
    }
    in_vllm = {
        "": InVllm(
            "scheduler", "_update_from_kv_xfer_finished", "The connector's worker reports that the load is complete."
        )
    }


@dataclass(frozen=True, slots=True)
class BlocksSaved(Event):
    """K and V of full blocks were copied to the external tier."""

    request_id: int
    transfers: tuple[Transfer, ...]

    topic = "external tier"
    phase = "any"
    decided_by = {
        "": (
            "Scheduler.choose_saves",
            "ExternalLoads.saves",
            "KVCacheManager.transfers",
            "KVCacheGroup.tier_hashes",
            "Connector.has",
            "Connector.save_kv",
            "Transfers.save",
        )
    }


@dataclass(frozen=True, slots=True)
class LoadFailed(Event):
    """The external tier could not deliver the blocks: the request will recompute their tokens."""

    request_id: int
    reason: str

    topic = "trouble"
    decided_by = {
        "": (
            "Transfers.forget",
            "Connector.start_load_kv",
            "Connector.get_finished",
            "Connector.forget",
            "ExternalLoads.last_failure",
            "Scheduler.take_arrived",
        )
    }
    in_vllm = {
        "": InVllm(
            "scheduler", "_handle_invalid_blocks", "The connector's worker reports blocks that it could not load."
        )
    }


@dataclass(frozen=True, slots=True)
class TierChanged(Event):
    """The external tier's content changed without a save of this engine's.

    Contents are named (group, block hash). One that was dropped and added is there again.
    """

    added: tuple[tuple[int, bytes], ...]
    """Put there for the lab: another engine has computed them."""
    dropped: tuple[tuple[int, bytes], ...]
    """Evicted, or forgotten because they could not be read."""
    pinned: tuple[tuple[int, bytes, int], ...] = ()
    """(group, block hash, transfers that keep it from being evicted); 0 where the last one gave its pin back."""

    topic = "external tier"
    phase = "any"
    decided_by = {"": ("Connector.take_changes", "Transfers._emit_changes")}


@dataclass(frozen=True, slots=True)
class PrefixCacheReset(Event):
    """All cached content was forgotten (a BlockEvicted for each block came before)."""

    topic = "trouble"
    decided_by = {"": ("KVCacheManager.reset_prefix_cache",)}
    in_vllm = {
        "": InVllm(
            "pool", "reset_prefix_cache", "All cached content is forgotten; that needs a pool without used blocks."
        )
    }


@dataclass(frozen=True, slots=True)
class BlockEvicted(Event):
    """A block's cached content is forgotten: its hashes and its map entries are gone."""

    block_id: int
    reason: EvictReason = "reused"

    topic = "block"
    decided_by = {
        "": ("BlockPool.take", "FreeQueue.take", "BlockPool.evict"),
        "replaced": ("KVCacheGroup.register_block", "BlockPool.evict"),
        "reset": (
            "KVCacheManager.reset_prefix_cache",
            "BlockPool.num_used",
            "BlockPool.evict_cached",
            "BlockPool.evict",
        ),
        "distrusted": ("Scheduler.forget_written", "BlockPool.evict_cached", "BlockPool.evict"),
    }
    in_vllm = {"": InVllm("pool", "_maybe_evict_cached_block", "A block that is given away forgets its content.")}


@dataclass(frozen=True, slots=True)
class BlockAllocated(Event):
    """The head of the free queue was taken, with ref_count 1 and no content, and appended to a block table."""

    block_id: int
    request_id: int
    group: int
    index: int

    topic = "block"
    decided_by = {
        "": (
            "KVCacheGroup.num_missing_blocks",
            "KVCacheManager.num_slots",
            "KVCacheManager.allocate_computed",
            "KVCacheManager.allocate",
            "BlockPool.num_free",
            "BlockPool.take",
            "FreeQueue.take",
            "BlockPool.evict",
            "KVCacheGroup.add_external",
            "KVCacheGroup.extend",
        )
    }
    in_vllm = {"": InVllm("pool", "get_new_blocks", "The head of the free queue is taken.")}


@dataclass(frozen=True, slots=True)
class BlocksSkipped(Event):
    """A new table starts with null entries: these blocks lie outside the window and will never be read."""

    request_id: int
    group: int
    num_blocks: int

    topic = "block"
    decided_by = {
        "": (
            "SlidingWindowGroup.num_skipped_tokens",
            "SlidingWindowGroup.window",
            "KVCacheGroup.add_hit",
            "KVCacheGroup.start_table",
        )
    }
    in_vllm = {"": InVllm("group", "add_local_computed_blocks", "Blocks that lie outside the window are not needed.")}


@dataclass(frozen=True, slots=True)
class BlockTouched(Event):
    """A cached block, or one of a fork's parent, was appended to one more table; a free one left the free queue."""

    block_id: int
    request_id: int
    group: int
    index: int
    ref_count: int
    """After the touch; 1 means that the block had been free."""
    is_fork: bool = False
    """True: it was not found by its hash. The request shares it as a fork of another one."""

    topic = "block"
    decided_by = {
        "": (
            "KVCacheManager.allocate_computed",
            "BlockPool.touch",
            "FreeQueue.remove",
            "KVCacheGroup.add_hit",
            "KVCacheGroup.start_table",
        ),
        "fork": (
            "KVCacheGroup.num_shared_tokens",
            "KVCacheManager.fork",
            "BlockPool.touch",
            "KVCacheGroup.add_shared",
            "KVCacheGroup.start_table",
        ),
    }
    in_vllm = {"": InVllm("pool", "touch", "A cached block is shared; a free one leaves the free queue.")}

    @property
    def variant(self) -> str:
        return "fork" if self.is_fork else ""


@dataclass(frozen=True, slots=True)
class BlockCached(Event):
    """A block's hash was registered in the prefix map."""

    block_id: int
    request_id: int
    group: int
    index: int
    block_hash: bytes
    mapped: tuple[int, ...]
    """All blocks the map holds under this hash now, the one served first. Empty: the duplicate policy left it out."""
    is_full: bool = True
    """False for the tail of a prompt that ends inside the block: a key of vLLM's, for finer hits than a block."""

    topic = "block"
    decided_by = {
        "": (
            "MergePolicy.mapped_after",
            "MergePolicy.merge_target",
            "KVCacheManager.num_registrable_tokens",
            "KVCacheManager.num_cacheable_tokens",
            "SlidingWindowGroup.is_worth_caching",
            "KVCacheGroup.caches_every_block",
            "KVCacheGroup.block_hashes",
            "HashChain.root",
            "HashChain.keyed",
            "HashChain.link",
            "KVCacheManager.extend_hashes",
            "KVCacheManager.register",
            "KVCacheGroup.register",
            "BlockPool.register",
            "KVCacheGroup.register_block",
        ),
        "tail": ("KVCacheGroup.register_tail", "KVCacheGroup.register_boundary", "KVCacheGroup.ends_of_prompt"),
    }
    in_vllm = {
        "": InVllm(
            "pool",
            "_insert_block_hash",
            "A block that is full is registered under its hash; a block with the same hash stays as well.",
        )
    }

    @property
    def variant(self) -> str:
        return "" if self.is_full else "tail"


@dataclass(frozen=True, slots=True)
class BlockMerged(Event):
    """Late merge: the request's table now points at an equal live block; its own copy is about to be freed.

    Source: nano-vLLM PR 243 (late merge). Both blocks' KV can still be read inside a listener.
    """

    block_id: int
    """The redundant copy."""
    into_block_id: int
    """The block that stays; its ref_count has grown by one."""
    request_id: int
    group: int
    index: int
    ref_count: int
    """Of the block that stays, after the merge."""

    topic = "block"
    decided_by = {
        "": (
            "MergePolicy.merge_target",
            "MergePolicy.is_alive",
            "MergePolicy.is_equal",
            "HashChain.link",
            "KVCacheGroup.register_block",
            "BlockPool.share",
            "KVCacheGroup.merge",
        )
    }


@dataclass(frozen=True, slots=True)
class BlockFreed(Event):
    """One reference to a block was dropped; at ref_count 0 it entered the free queue at `queue_end`, content kept.

    For finished, aborted and preempted requests the table entry went with it; a merged or copied block had lost its
    entry before; a block that left the window, or whose state a newer block goes on from, becomes a null entry.
    """

    block_id: int
    request_id: int
    group: int
    index: int
    ref_count: int
    queue_end: QueueEnd | None
    reason: FreeReason

    topic = "block"
    decided_by = {
        "": (
            "BlockPool.reused_first",
            "KVCacheGroup.freeing_order",
            "KVCacheManager.free",
            "KVCacheGroup.free",
            "BlockPool.release",
            "FreeQueue.append",
            "FreeQueue.prepend",
            "KVCacheGroup.release",
        ),
        "preempted": (
            "Scheduler.choose_victim",
            "WaitingQueue.least_urgent",
            "BlockPool.reused_first",
            "KVCacheGroup.freeing_order",
            "KVCacheManager.free",
            "KVCacheGroup.free",
            "BlockPool.release",
            "FreeQueue.append",
            "FreeQueue.prepend",
            "KVCacheGroup.release",
        ),
        "merged": (
            "MergePolicy.merge_target",
            "KVCacheGroup.merge",
            "BlockPool.reused_first",
            "BlockPool.release",
            "FreeQueue.append",
            "FreeQueue.prepend",
            "KVCacheGroup.release",
        ),
        "copied": (
            "KVCacheGroup.copies_before_write",
            "KVCacheGroup.copy",
            "BlockPool.release",
            "KVCacheGroup.release",
        ),
        "state": (
            "StateGroup.num_skipped_tokens",
            "StateGroup.drop_skipped",
            "BlockPool.reused_first",
            "BlockPool.release",
            "FreeQueue.append",
            "FreeQueue.prepend",
            "KVCacheGroup.release",
        ),
        "pruned": (
            "Scheduler.places",
            "Scheduler.replace_beam",
            "BlockPool.reused_first",
            "KVCacheGroup.freeing_order",
            "KVCacheManager.free",
            "KVCacheGroup.free",
            "BlockPool.release",
            "FreeQueue.append",
            "FreeQueue.prepend",
            "KVCacheGroup.release",
        ),
        "window": (
            "SlidingWindowGroup.num_skipped_tokens",
            "SlidingWindowGroup.window",
            "BlockPool.reused_first",
            "KVCacheGroup.freeing_order",
            "KVCacheGroup.drop_skipped",
            "BlockPool.release",
            "FreeQueue.append",
            "FreeQueue.prepend",
            "KVCacheGroup.release",
        ),
    }
    in_vllm = {
        "": InVllm(
            "pool",
            "free_blocks",
            "A block without a reference joins the free queue: at the tail with a hash, at the head without.",
        ),
        "window": InVllm("group", "_remove_blocks_in_range", "Blocks that have left the window are freed."),
        "state": InVllm("state", "remove_skipped_blocks", "The states that a request has gone on from are freed."),
        "preempted": InVllm("scheduler", "_preempt_request", "A preempted request gives all its blocks back."),
        "load_failed": InVllm(
            "scheduler",
            "_update_waiting_for_remote_kv",
            "A request whose load failed from its first block on gives its blocks back.",
        ),
    }


@dataclass(frozen=True, slots=True)
class FreeDeferred(Event):
    """A request gave up a group's table while a step under way may still write its blocks.

    Each block keeps that reference, now of no table, until its BlockUnpinned.
    """

    request_id: int
    group: int
    block_ids: tuple[int, ...]
    """The table's blocks in order, without null entries."""

    topic = "block"
    in_vllm = {
        "": InVllm(
            "scheduler", "_free_request_blocks", "A step under way may still write the blocks: they are freed after it."
        )
    }


@dataclass(frozen=True, slots=True)
class BlockPinned(Event):
    """A block got one more reference, which is of no table; a free one left the free queue."""

    block_id: int
    ref_count: int
    """After the pin; 1 means that the block had been free."""

    topic = "block"
    decided_by = {"": ("KVCacheGroup.copy_partial", "BlockPool.share", "BlockPool.take")}
    in_vllm = {"": InVllm("pool", "touch", "A connector that copies a block keeps it from being given away.")}


@dataclass(frozen=True, slots=True)
class BlockUnpinned(Event):
    """A reference of no table was dropped; at ref_count 0 the block entered the free queue at `queue_end`."""

    block_id: int
    ref_count: int
    queue_end: QueueEnd | None

    topic = "block"
    decided_by = {"": ("KVCacheManager.unpin", "KVCacheManager.take_copies", "BlockPool.release")}
    in_vllm = {"": InVllm("pool", "free_blocks", "Whoever held the block without a table needs it no longer.")}


@dataclass(frozen=True, slots=True)
class BlockCopied(Event):
    """A request is about to write to a shared block: its table now points at a private copy of it.

    The copy was the head of the free queue, and is filled before the step's forward pass. labengine copies when a fork
    writes; a BlockFreed for the shared block follows. vLLM copies when a hit ends inside a block.
    """

    block_id: int
    """The shared block; its ref_count is not changed by this event."""
    into_block_id: int
    """The copy."""
    request_id: int
    group: int
    index: int
    is_pinned: bool = True
    """True: until the copy is filled, each of both blocks has one reference of no table, and the copy's ref_count is 2.
    False: the copy's ref_count is 1, and the reference that the table had to the shared block is dropped next."""

    topic = "block"
    decided_by = {
        "": (
            "KVCacheGroup.copies_before_write",
            "KVCacheGroup.entries_to_copy",
            "KVCacheManager.allocate",
            "BlockPool.take",
            "FreeQueue.take",
            "BlockPool.evict",
            "KVCacheManager.copy",
            "KVCacheManager.take_copies",
            "KVCacheGroup.copy",
            "KVCacheGroup.copy_partial",
            "KVCacheGroup.ends_inside",
        )
    }
    in_vllm = {"": InVllm("group", "_apply_cow", "A hit that ends inside a block goes on in a private copy of it.")}


@dataclass(frozen=True, slots=True)
class BlockMoved(Event):
    """A scratch block of a request with states went from one entry of its table to the end of the table.

    The entry became null: the running state has passed it. Reference count and free queue did not change.
    """

    block_id: int
    request_id: int
    group: int
    index: int
    """The entry that became null."""
    into_index: int
    """The new last entry."""

    topic = "block"
    decided_by = {"": ("StateGroup.move", "StateGroup.num_scratch", "KVCacheGroup.extend", "KVCacheManager.allocate")}
    in_vllm = {"": InVllm("state", "allocate_new_blocks", "The running state goes on behind a block kept for drafts.")}


@dataclass(frozen=True, slots=True)
class StateCopied(Event):
    """A request's state goes on in another block: it is copied there before the step's forward pass.

    The block that it is copied from keeps the state after num_tokens tokens, for other requests to hit; it is freed
    later. Or it is a scratch block, whose state a draft led to that was accepted. Nothing changes by this event: the
    table has both blocks.
    """

    block_id: int
    into_block_id: int
    request_id: int
    group: int
    num_tokens: int

    topic = "block"
    decided_by = {
        "": (
            "KVCacheGroup.carry_over",
            "StateGroup.state_entry",
            "StateGroup.entries_of_states",
            "KVCacheGroup.num_missing_blocks",
            "KVCacheManager.allocate",
            "KVCacheManager.take_copies",
        )
    }


@dataclass(frozen=True, slots=True)
class HashesMoved(Event):
    """All hashes of a block, and its map entries, were moved to another block that holds the same content."""

    block_id: int
    into_block_id: int

    topic = "block"
    decided_by = {"": ("KVCacheGroup.copy_partial", "BlockPool.move_keys")}
    in_vllm = {
        "": InVllm("pool", "move_block_hashes", "Another block with the same content is served in place of this one.")
    }


@dataclass(frozen=True, slots=True)
class SlotsWritten(Event):
    """The forward pass wrote KV for tokens [start, ...) of a request, run by run."""

    request_id: int
    group: int
    start: int
    runs: tuple[tuple[int, int, int], ...]
    """(block_id, offset, length) per block touched."""

    topic = "model"
    phase = "forward"
    decided_by = {
        "": ("KVCacheManager.slot_runs", "KVCacheGroup.slots", "BlockPool.null_block", "Engine._emit_written")
    }


@dataclass(frozen=True, slots=True)
class StateAdvanced(Event):
    """The forward pass overwrote a request's state after `start` tokens with the one after `end` tokens, in one block.

    With start 0 it began with the zero state, whatever the block held.
    """

    request_id: int
    group: int
    block_id: int
    start: int
    end: int

    topic = "model"
    phase = "forward"
    decided_by = {"": ("KVCacheGroup.slots", "KVCacheManager.slot_runs", "Engine._emit_written")}


@dataclass(frozen=True, slots=True)
class ForwardRan(Event):
    """The model computed all scheduled tokens of the step in one batch."""

    num_requests: int
    num_tokens: int

    topic = "model"
    phase = "forward"
    decided_by = {"": ("Scheduler.schedule", "Engine._forward")}


@dataclass(frozen=True, slots=True)
class TokensComputed(Event):
    """A request's KV now holds its first num_computed_tokens tokens."""

    request_id: int
    num_computed_tokens: int
    """0 after a load that failed from its first block on: a table of null entries alone is then empty again."""

    topic = "request"
    decided_by = {"": ("Scheduler.book_computed", "Scheduler.book_accepted", "Scheduler.count_computed")}
    in_vllm = {
        "": InVllm("scheduler", "update_from_output", "The tokens of a step count as computed when its output arrives.")
    }


@dataclass(frozen=True, slots=True)
class TokenSampled(Event):
    """A token was appended to a request; its KV will be written by a later step."""

    request_id: int
    token_id: int
    position: int

    topic = "model"
    phase = "sample"
    decided_by = {
        "": (
            *("Scheduler.update", "Scheduler.judge_drafts", "Scheduler.num_accepted", "Scheduler.book"),
            *("Scheduler.fill_in", "Scheduler.plan", "Scheduler.append_token"),
        )
    }
    in_vllm = {"": InVllm("scheduler", "_update_request_with_output", "The step's output is appended to the request.")}


@dataclass(frozen=True, slots=True)
class TokensDrafted(Event):
    """A proposer guessed a request's next tokens; the next step that schedules the request computes and judges them.

    No tokens: earlier guesses were dropped.
    """

    request_id: int
    token_ids: tuple[int, ...]

    topic = "model"
    decided_by = {"": ("Scheduler.num_wanted_drafts", "Engine._draft", "Scheduler.set_drafts")}
    in_vllm = {
        "": InVllm(
            "scheduler",
            "update_draft_token_ids",
            "Guesses are for requests that decode alone.",
        )
    }


@dataclass(frozen=True, slots=True)
class DraftsJudged(Event):
    """The model's own tokens were compared with the guesses that the step computed; what they agree in is kept.

    A TokenSampled follows for each accepted guess, and one for the token behind them, as far as the request goes on. KV
    of rejected guesses stays in the blocks as garbage: the next step writes over it.
    """

    request_id: int
    num_accepted: int
    num_rejected: int

    topic = "model"
    phase = "sample"
    decided_by = {"": ("Scheduler.num_accepted", "Scheduler.update", "Scheduler.judge_drafts")}
    in_vllm = {
        "": InVllm(
            "scheduler",
            "update_from_output",
            "Rejected guesses no longer count as computed.",
        )
    }


@dataclass(frozen=True, slots=True)
class ViolationFound(Event):
    """A rule does not hold. Emitted once per rule, request and block, when the violation is first seen."""

    rule: str
    message: str
    request_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    step: int
    first_event: int | None
    """Number of the event after which the rule no longer held. None when it is not recorded."""
    misnamed: tuple[tuple[int, int, bytes, bytes], ...] = ()
    """Blocks whose KV is not what their hash stands for: (block_id, group, block hash, hash of what the KV is).

    The last one is empty where the KV is that of no complete block of a request.
    """
    fact: tuple[str, ...] = ()
    """Of the rule "said": what differs (one of check.contradictions.ABOUT), what the events say, and what is."""

    topic = "trouble"
    phase = "any"
    decided_by = {"": ("Watch._report",)}


@dataclass(frozen=True, slots=True)
class DecisionDiffered(Event):
    """An override decided otherwise than the method that it replaces, which was asked on the same state.

    Emitted for the first disagreement of each override, right after the decision; for a look-up once more per request
    that finds less. Nothing changes by it.
    """

    method: str
    """Class and method of the override: "Mine.choose_victim"."""
    replaces: str
    """Class and method that were asked beside it: "TokenBudgetScheduler.choose_victim"."""
    decided: str
    instead_of: str
    """What the two have returned, in short: "request 0"; or that the second one has raised an error."""
    request_id: int
    """The request that was decided about; -1 for none."""

    topic = "trouble"
    decided_by = {"": ("Watch.note_difference",)}


EVENT_KINDS: tuple[type[Event], ...] = tuple(
    kind for kind in Event.__subclasses__() if globals()[kind.__name__] is kind
)
"""Every kind of event, in the order of this file. (slots=True makes each class twice: the first one is left out.)"""
