"""Events of a block: in the free queue, in tables and in the prefix map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from labengine.events.event import Event, InVllm, methods
from labengine.events.fields import (
    BlockId,
    EntryIndex,
    EvictReason,
    FreeReason,
    GainingBlock,
    GroupNumber,
    LosingBlock,
    NamedEntry,
    QueueEnd,
    RequestId,
    Signed,
)

_RELEASED = (
    "BlockPool.release FreeQueue.append FreeQueue.prepend KVCacheGroup.freed_together KVCacheGroup.free_in_group "
    "KVCacheGroup.release"
)
_FREED = f"BlockPool.reused_first KVCacheGroup.freeing_order KVCacheManager.free KVCacheGroup.free {_RELEASED}"


@dataclass(frozen=True, slots=True)
class PrefixCacheReset(Event):
    """All cached content was forgotten, after a BlockEvicted for each block."""

    topic = "trouble"
    decided_by = {"": ("KVCacheManager.reset_prefix_cache",)}
    in_vllm = {
        "": InVllm(
            "pool", "reset_prefix_cache", "All cached content is forgotten, which requires a pool without used blocks."
        )
    }


@dataclass(frozen=True, slots=True)
class BlockEvicted(Event):
    """A block's cached content is forgotten: its hashes and its map entries are gone."""

    block_id: BlockId
    reason: Annotated[EvictReason, str] = "reused"
    """A user's part may give another one."""

    topic = "block"
    decided_by = {
        "": methods("BlockPool.take FreeQueue.take BlockPool.evict BlockPool.forget"),
        "replaced": methods("KVCacheGroup.register_block BlockPool.evict BlockPool.forget"),
        "reset": methods(
            "KVCacheManager.reset_prefix_cache BlockPool.num_used BlockPool.evict_cached BlockPool.evict",
            "BlockPool.forget",
        ),
        "distrusted": methods("Scheduler.forget_written BlockPool.evict_cached BlockPool.evict BlockPool.forget"),
    }
    in_vllm = {"": InVllm("pool", "_maybe_evict_cached_block", "A block that is given away loses its content.")}


@dataclass(frozen=True, slots=True)
class BlockAllocated(Event):
    """A block was taken from the free queue, with ref_count 1 and no content, and appended to a block table."""

    block_id: GainingBlock
    request_id: RequestId
    group: GroupNumber
    index: EntryIndex

    topic = "block"
    decided_by = {
        "": methods(
            "KVCacheGroup.num_missing_blocks StateGroup.begin_chunk StateGroup.count_chunk StateGroup.first_written",
            "KVCacheManager.num_slots KVCacheManager.allocate_computed",
            "KVCacheManager.allocate BlockPool.num_free BlockPool.take FreeQueue.take BlockPool.evict",
            "KVCacheGroup.add_external KVCacheGroup.extend",
        ),
    }
    in_vllm = {"": InVllm("pool", "get_new_blocks", "The head of the free queue is taken.")}


@dataclass(frozen=True, slots=True)
class BlocksSkipped(Event):
    """A table continues with null entries: for blocks outside a window, or before the state that covers their tokens.

    No later token reads them.
    """

    request_id: RequestId
    group: GroupNumber
    num_blocks: int

    topic = "block"
    decided_by = {
        "": methods(
            "SlidingWindowGroup.num_skipped_tokens SlidingWindowGroup.window StateGroup.num_skipped_tokens",
            "StateGroup.extend KVCacheGroup.add_hit KVCacheGroup.start_table KVCacheGroup.skip",
        ),
    }
    in_vllm = {
        "": InVllm("group", "add_local_computed_blocks", "Blocks and states that no later token reads are not needed.")
    }


@dataclass(frozen=True, slots=True)
class BlockTouched(Event):
    """A cached block or one of a fork's parent was appended to another table; a free block left the free queue."""

    block_id: GainingBlock
    request_id: RequestId
    group: GroupNumber
    index: EntryIndex
    ref_count: Signed
    """Reference count after the touch; 1 means that the block had been free."""
    is_fork: bool = False
    """True: the request shares the block as a fork of another one, without finding it by its hash."""

    topic = "block"
    decided_by = {
        "": methods(
            "KVCacheManager.allocate_computed BlockPool.touch FreeQueue.remove KVCacheGroup.add_hit",
            "KVCacheGroup.start_table",
        ),
        "fork": methods(
            "KVCacheGroup.num_shared_tokens KVCacheManager.fork BlockPool.touch KVCacheGroup.add_shared",
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

    block_id: BlockId
    request_id: RequestId
    group: GroupNumber
    index: NamedEntry
    block_hash: bytes
    mapped: tuple[BlockId, ...]
    """All blocks now in the map under this hash, the served one first. Empty: the duplicate policy left it out."""
    is_full: bool = True
    """False for one of vLLM's keys for other than the block's last token: for the tail of a prompt that ends inside the
    block, or for the tokens covered by a state inside a chunk."""

    topic = "block"
    decided_by = {
        "": methods(
            "PrefixTree.insert MergePolicy.mapped_after MergePolicy.merge_target KVCacheManager.num_registrable_tokens",
            "KVCacheManager.insert KVCacheManager.keep KVCacheGroup.insert KVCacheManager.num_cacheable_tokens",
            "SlidingWindowGroup.is_worth_caching KVCacheGroup.caches_every_block",
            "KVCacheGroup.block_hashes HashChain.root HashChain.keyed HashChain.link KVCacheManager.extend_hashes",
            "KVCacheManager.register KVCacheGroup.register BlockPool.register KVCacheGroup.register_block",
        ),
        "tail": methods(
            "KVCacheGroup.register_tail KVCacheGroup.register_boundary KVCacheGroup.ends_of_prompt",
            "StateGroup.register_checkpoint StateGroup.is_kept_by_interval",
        ),
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
    """Late merge: the request's table now points to an equal live block; its own copy is about to be freed.

    Source: nano-vLLM PR 243 (late merge). A listener can still read both blocks' KV.
    """

    block_id: BlockId
    """The redundant copy."""
    into_block_id: GainingBlock
    """The block that stays; its ref_count has grown by one."""
    request_id: RequestId
    group: GroupNumber
    index: EntryIndex
    ref_count: Signed
    """Reference count of the block that stays, after the merge."""

    topic = "block"
    decided_by = {
        "": methods(
            "PrefixTree.insert MergePolicy.merge_target MergePolicy.is_alive MergePolicy.is_equal HashChain.link",
            "KVCacheGroup.insert KVCacheGroup.merge_into KVCacheGroup.register_block BlockPool.share",
            "KVCacheGroup.merge",
        ),
    }


@dataclass(frozen=True, slots=True)
class BlockFreed(Event):
    """One reference to a block was dropped; at ref_count 0 it entered the free queue at `queue_end`, content kept.

    For finished, aborted and preempted requests the table entry was removed with it; a merged or copied block had lost
    its entry before. If a block left the window, or its state continued in a newer block, its entry becomes null.
    """

    block_id: LosingBlock
    request_id: RequestId
    group: GroupNumber
    index: EntryIndex
    ref_count: Signed
    queue_end: QueueEnd | None
    reason: Annotated[FreeReason, str]
    """A user's part may give another one."""

    topic = "block"
    decided_by = {
        "": methods(_FREED),
        "preempted": methods("Scheduler.choose_victim WaitingQueue.least_urgent", _FREED),
        "merged": methods(
            "PrefixTree.insert MergePolicy.merge_target KVCacheGroup.merge BlockPool.reused_first", _RELEASED
        ),
        "copied": methods(
            "KVCacheGroup.copies_before_write KVCacheGroup.copy BlockPool.release KVCacheGroup.release",
        ),
        "state": methods("StateGroup.num_skipped_tokens StateGroup.drop_skipped BlockPool.reused_first", _RELEASED),
        "pruned": methods("BeamSearches.places BeamSearches.replace_beam", _FREED),
        "window": methods(
            "SlidingWindowGroup.num_skipped_tokens SlidingWindowGroup.window BlockPool.reused_first",
            "KVCacheGroup.freeing_order KVCacheGroup.drop_skipped",
            _RELEASED,
        ),
    }
    in_vllm = {
        "": InVllm(
            "pool",
            "free_blocks",
            "A block without a reference joins the free queue: at the tail with a hash, at the head without.",
        ),
        "window": InVllm("group", "_remove_blocks_in_range", "Blocks that have left the window are freed."),
        "state": InVllm("state", "remove_skipped_blocks", "States from which a request has continued are freed."),
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

    Each block keeps that reference, now outside any table, until its BlockUnpinned.
    """

    request_id: RequestId
    group: GroupNumber
    block_ids: tuple[BlockId, ...]
    """The table's blocks in order, without null entries."""

    topic = "block"
    in_vllm = {
        "": InVllm(
            "scheduler",
            "_free_request_blocks",
            "A step in progress may still write to the blocks: they are freed later.",
        )
    }


@dataclass(frozen=True, slots=True)
class BlockPinned(Event):
    """A block got another reference, outside any table; a free block left the free queue."""

    block_id: GainingBlock
    ref_count: Signed
    """Reference count after the pin; 1 means that the block had been free."""

    topic = "block"
    decided_by = {"": ("KVCacheGroup.copy_partial", "BlockPool.share", "BlockPool.take")}
    in_vllm = {"": InVllm("pool", "touch", "A connector that copies a block keeps it from being given away.")}


@dataclass(frozen=True, slots=True)
class BlockUnpinned(Event):
    """A reference outside any table was dropped; at ref_count 0 the block entered the free queue at `queue_end`."""

    block_id: LosingBlock
    ref_count: Signed
    queue_end: QueueEnd | None

    topic = "block"
    decided_by = {"": ("KVCacheManager.unpin", "KVCacheManager.take_copies", "BlockPool.release")}
    in_vllm = {
        "": InVllm("pool", "free_blocks", "The holder of a reference outside any table no longer needs the block.")
    }


@dataclass(frozen=True, slots=True)
class BlockCopied(Event):
    """A request is about to write to a shared block: its table now points at a private copy of it.

    The copy was taken from the free queue and is filled before the step's forward pass. labengine copies when a fork
    writes; a BlockFreed for the shared block follows. vLLM copies when a hit ends inside a block.
    """

    block_id: BlockId
    """The shared block; this event does not change its ref_count."""
    into_block_id: GainingBlock
    """The copy."""
    request_id: RequestId
    group: GroupNumber
    index: EntryIndex
    is_pinned: bool = True
    """True: until the copy is filled, each block has one reference outside any table, and the copy's ref_count is 2.
    False: the copy's ref_count is 1, and the table's reference to the shared block is dropped next."""

    topic = "block"
    decided_by = {
        "": methods(
            "KVCacheGroup.copies_before_write KVCacheGroup.entries_to_copy KVCacheManager.allocate BlockPool.take",
            "FreeQueue.take BlockPool.evict KVCacheManager.copy KVCacheManager.take_copies KVCacheGroup.copy",
            "KVCacheGroup.copy_partial KVCacheGroup.ends_inside",
        ),
    }
    in_vllm = {"": InVllm("group", "_apply_cow", "A hit that ends inside a block continues in a private copy of it.")}


@dataclass(frozen=True, slots=True)
class BlockMoved(Event):
    """A scratch block of a request with states moved from one entry of its table to the end of the table.

    The entry became null, because the running state has passed it. Reference count and free queue did not change.
    """

    block_id: BlockId
    request_id: RequestId
    group: GroupNumber
    index: EntryIndex
    """The entry that became null."""
    into_index: int
    """The new last entry."""

    topic = "block"
    decided_by = {"": ("StateGroup.move", "StateGroup.num_scratch", "KVCacheGroup.extend", "KVCacheManager.allocate")}
    in_vllm = {"": InVllm("state", "allocate_new_blocks", "The running state continues after a block kept for drafts.")}


@dataclass(frozen=True, slots=True)
class StateCopied(Event):
    """A request's state continues in another block: it is copied there before the step's forward pass.

    The source block keeps the state after num_tokens tokens for other requests to hit, and is freed later; or it is a
    scratch block with the state after an accepted draft. This event changes nothing: the table has both blocks.
    """

    block_id: BlockId
    into_block_id: BlockId
    request_id: RequestId
    group: GroupNumber
    num_tokens: int

    topic = "block"
    decided_by = {
        "": methods(
            "KVCacheGroup.carry_over StateGroup.state_entry StateGroup.entries_of_states",
            "KVCacheGroup.num_missing_blocks KVCacheManager.allocate KVCacheManager.take_copies",
        ),
    }


@dataclass(frozen=True, slots=True)
class HashesMoved(Event):
    """All hashes of a block and its map entries were moved to another block with the same content."""

    block_id: BlockId
    into_block_id: BlockId

    topic = "block"
    decided_by = {"": ("KVCacheGroup.copy_partial", "BlockPool.move_keys")}
    in_vllm = {
        "": InVllm("pool", "move_block_hashes", "Another block with the same content is served instead of this one.")
    }


EntryReplaced = BlockMerged | BlockCopied
"""Kinds after which a table entry names another block; a BlockFreed for the former block has a reason of its kind."""
