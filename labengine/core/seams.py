"""The method that decides each kind of event: one table for the views, for Why? and for the checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from labengine.core.external_loads import ExternalLoads
from labengine.core.part_methods import class_name, definers, is_custom
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import PrefixLookup
from labengine.events import BlockCached, Event

DECIDED_BY: dict[str, tuple[str, ...]] = {
    "EngineStarted": ("Parts.assemble", "Engine.__init__"),
    "StepStarted": ("Engine._all_or_nothing",),
    "StepEnded": ("Engine._all_or_nothing",),
    "StepFailed": ("Engine._all_or_nothing",),
    "StepRolledBack": ("Scheduler.forget_written", "Engine._roll_back"),
    "RequestAdded": ("Scheduler.add",),
    "PrefixHit": (
        "KVCacheGroup.find_hit",
        "SlidingWindowGroup.find_hit",
        "KVCacheManager.longest_hit",
        "PrefixLookup.longest_hit",
        "KVCacheManager.find_prefix",
        "KVCacheGroup.cached_run",
        "KVCacheGroup.cached_block",
        "MergePolicy.is_equal",
        "HashChain.root",
        "HashChain.link",
        "KVCacheManager.admit",
    ),
    "RequestScheduled": (
        "Scheduler.schedule",
        "Scheduler.next_waiting",
        "Scheduler.skips",
        "Scheduler.admit",
        "KVCacheManager.can_admit",
        "Scheduler.plan",
    ),
    "RequestPreempted": (
        "Scheduler.choose_victim",
        "Scheduler.allocate_or_preempt",
        "Scheduler.preempt",
        "Scheduler.requeue",
        "KVCacheManager.free",
        "KVCacheGroup.freeing_order",
        "KVCacheGroup.free",
        "KVCacheGroup.release",
        "Scheduler.take_blocks",
    ),
    "RequestFinished": (
        "Scheduler.finish_reason",
        "KVCacheManager.free",
        "KVCacheGroup.freeing_order",
        "KVCacheGroup.free",
        "KVCacheGroup.release",
        "Scheduler.finish",
    ),
    "RequestFinished:abort": (
        "Scheduler.abort",
        "KVCacheManager.free",
        "KVCacheGroup.freeing_order",
        "KVCacheGroup.free",
        "KVCacheGroup.release",
        "Scheduler.finish",
    ),
    "RequestForgotten": ("Scheduler.forget_finished",),
    "ExternalHit": ("Scheduler.match_external", "ExternalLoads.match", "KVCacheManager.admit"),
    "BlocksLoaded": (
        "KVCacheManager.external_blocks",
        "ExternalLoads.load",
        "Scheduler.take_arrived",
        "Transfers.load",
    ),
    "BlocksSaved": ("Scheduler.choose_saves", "ExternalLoads.saves", "Transfers.save"),
    "TierChanged": ("Transfers._emit_changes",),
    "LoadFailed": ("Transfers.forget", "Scheduler.take_arrived"),
    "PrefixCacheReset": ("KVCacheManager.reset_prefix_cache",),
    "BlockEvicted": ("BlockPool.take", "FreeQueue.take", "BlockPool.evict"),
    "BlockEvicted:replaced": ("KVCacheGroup.register_block", "BlockPool.evict"),
    "BlockEvicted:reset": ("KVCacheManager.reset_prefix_cache", "BlockPool.evict"),
    "BlockEvicted:distrusted": ("Scheduler.forget_written", "BlockPool.evict"),
    "BlockAllocated": (
        "KVCacheGroup.num_missing_blocks",
        "KVCacheManager.allocate_computed",
        "KVCacheManager.allocate",
        "BlockPool.take",
        "FreeQueue.take",
        "BlockPool.evict",
        "KVCacheGroup.extend",
    ),
    "BlocksSkipped": ("SlidingWindowGroup.num_skipped_tokens", "KVCacheGroup.add_hit"),
    "BlockTouched": (
        "KVCacheManager.allocate_computed",
        "BlockPool.touch",
        "FreeQueue.remove",
        "KVCacheGroup.add_hit",
    ),
    "BlockCached": (
        "MergePolicy.mapped_after",
        "MergePolicy.merge_target",
        "KVCacheManager.num_registrable_tokens",
        "SlidingWindowGroup.is_worth_caching",
        "HashChain.link",
        "KVCacheManager.register",
        "KVCacheGroup.register",
        "BlockPool.register",
        "KVCacheGroup.register_block",
    ),
    "BlockCached:tail": ("KVCacheGroup.register_tail",),
    "BlockMerged": (
        "MergePolicy.merge_target",
        "MergePolicy.is_alive",
        "MergePolicy.is_equal",
        "HashChain.link",
        "KVCacheGroup.register_block",
        "BlockPool.share",
        "KVCacheGroup.merge",
    ),
    "BlockFreed": (
        "BlockPool.reused_first",
        "KVCacheGroup.freeing_order",
        "KVCacheManager.free",
        "KVCacheGroup.free",
        "BlockPool.release",
        "FreeQueue.append",
        "FreeQueue.prepend",
        "KVCacheGroup.release",
    ),
    "BlockFreed:preempted": (
        "Scheduler.choose_victim",
        "BlockPool.reused_first",
        "KVCacheGroup.freeing_order",
        "KVCacheManager.free",
        "KVCacheGroup.free",
        "BlockPool.release",
        "FreeQueue.append",
        "FreeQueue.prepend",
        "KVCacheGroup.release",
    ),
    "BlockFreed:merged": (
        "MergePolicy.merge_target",
        "KVCacheGroup.merge",
        "BlockPool.reused_first",
        "BlockPool.release",
        "FreeQueue.append",
        "FreeQueue.prepend",
        "KVCacheGroup.release",
    ),
    "BlockFreed:window": (
        "SlidingWindowGroup.num_skipped_tokens",
        "BlockPool.reused_first",
        "KVCacheGroup.freeing_order",
        "KVCacheGroup.drop_skipped",
        "BlockPool.release",
        "FreeQueue.append",
        "FreeQueue.prepend",
        "KVCacheGroup.release",
    ),
    "SlotsWritten": ("KVCacheManager.slot_runs", "BlockPool.null_block", "Engine._forward"),
    "ForwardRan": ("Scheduler.schedule", "Engine._forward"),
    "TokensComputed": ("Scheduler.book_computed",),
    "TokenSampled": ("Scheduler.update", "Scheduler.plan", "Scheduler.append_token"),
    "ViolationFound": ("Watch._report",),
}
"""Per kind of event, or kind:variant: the method that usually decides, others that take part, and last the emitter.

For a late load Scheduler.take_arrived emits BlocksLoaded and LoadFailed, for a load within the step Transfers.

A variant is the event's `reason`, or "tail" for the BlockCached of a block that is not full."""

OF_RECORDINGS = frozenset(
    {"RequestReleased", "FreeDeferred", "BlockPinned", "BlockUnpinned", "BlockCopied", "HashesMoved"}
)
"""Kinds of events that only a recording of another engine has: no part of labengine decides them."""


class Decider(NamedTuple):
    """The effective definition of a method; str() gives, for example, WrongTouch.touch."""

    owner: type
    """The class that defines it."""
    method: str

    def __str__(self) -> str:
        return f"{class_name(self.owner)}.{self.method}"


def decider(parts: Parts, event: Event | str) -> Decider | None:
    """Return the method that decides an event (or a kind: "BlockFreed", "BlockFreed:merged") in these parts.

    The first of its table entry whose class is not one of labengine's own, else the first of them. None where no part
    decides: the engine or the checks do.
    """
    found = list(_deciders(parts, event))
    return next((one for one in found if is_custom(one.owner)), found[0] if found else None)


def owners(parts: Parts) -> dict[str, tuple[type, ...]]:
    """Return the core's classes for each owner that the table names; Engine, Transfers and Watch are not the core's."""
    return {
        "Scheduler": (parts.scheduler,),
        "KVCacheManager": (parts.kv_cache_manager,),
        "KVCacheGroup": (parts.full_attention_group, parts.sliding_window_group),
        "SlidingWindowGroup": (parts.sliding_window_group,),
        "BlockPool": (parts.block_pool,),
        "FreeQueue": (parts.free_queue,),
        "HashChain": (parts.hash_chain,),
        "MergePolicy": (parts.merge_policy,),
        "PrefixLookup": (PrefixLookup,),
        "ExternalLoads": (ExternalLoads,),
        "Parts": (type(parts),),
    }


def _deciders(parts: Parts, event: Event | str) -> Iterator[Decider]:
    classes = owners(parts)
    for name in deciding_methods(event):
        part, _, method = name.partition(".")
        for cls in classes.get(part, ()):
            if defined := definers(cls, method):
                yield Decider(defined[0], method)


def deciding_methods(event: Event | str) -> tuple[str, ...]:
    """Return the entry of DECIDED_BY for an event, its variant included, or for a kind; empty for OF_RECORDINGS."""
    kind = event if isinstance(event, str) else f"{type(event).__name__}:{_variant(event)}"
    plain = kind.partition(":")[0]
    return () if plain in OF_RECORDINGS else DECIDED_BY.get(kind) or DECIDED_BY[plain]


def _variant(event: Event) -> str:
    if isinstance(event, BlockCached):
        return "" if event.is_full else "tail"
    return str(getattr(event, "reason", ""))
