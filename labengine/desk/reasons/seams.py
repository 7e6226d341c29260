"""Which method decides each kind of event: its source, its reason, and what it overrides. For views code and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labengine.core.external_loads import ExternalLoads
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import PrefixLookup
from labengine.desk.reasons.methods import Method, method_of

Seam = dict[str, Any]
"""JSON-able: seam "MergePolicy.merge_target", class (the one that decides), module, line, reason, source, base (what it
overrides: {class, source, reason}, or None), is_custom (the class is not one of labengine's own core or engine), and
methods: others that had a say, in the same shape, the one that emits the event last ("is_emitter")."""

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
        "Scheduler._admit",
        "Scheduler._prefill",
        "KVCacheManager.can_admit",
        "Scheduler._plan",
    ),
    "RequestPreempted": ("Scheduler._preempt_for", "Scheduler._allocate_or_preempt", "Scheduler._take_blocks"),
    "RequestFinished": ("Scheduler._finish_reason", "Scheduler._finish"),
    "RequestFinished:abort": ("Scheduler.abort", "Scheduler._finish"),
    "RequestForgotten": ("Scheduler.forget_finished",),
    "ExternalHit": ("ExternalLoads.match", "KVCacheManager.admit"),
    "BlocksLoaded": ("KVCacheManager.external_blocks", "ExternalLoads.load", "Transfers.load"),
    "BlocksSaved": ("ExternalLoads.saves", "Transfers.save"),
    "LoadFailed": ("Transfers.forget", "Scheduler._take_arrived"),
    "PrefixCacheReset": ("KVCacheManager.reset_prefix_cache",),
    "BlockEvicted": ("BlockPool.take", "BlockPool.evict"),
    "BlockEvicted:replaced": ("KVCacheGroup._register_block", "BlockPool.evict"),
    "BlockEvicted:reset": ("KVCacheManager.reset_prefix_cache", "BlockPool.evict"),
    "BlockEvicted:distrusted": ("Scheduler.forget_written", "BlockPool.evict"),
    "BlockAllocated": (
        "KVCacheGroup.num_missing_blocks",
        "KVCacheManager.allocate_computed",
        "BlockPool.take",
        "KVCacheGroup.extend",
    ),
    "BlocksSkipped": ("SlidingWindowGroup.num_skipped_tokens", "KVCacheGroup.add_hit"),
    "BlockTouched": ("KVCacheManager.allocate_computed", "BlockPool.touch", "KVCacheGroup.add_hit"),
    "BlockCached": (
        "MergePolicy.mapped_after",
        "MergePolicy.merge_target",
        "KVCacheManager.num_registrable_tokens",
        "SlidingWindowGroup.is_worth_caching",
        "HashChain.link",
        "KVCacheGroup._register_block",
    ),
    "BlockCached:tail": ("KVCacheGroup._register_tail",),
    "BlockMerged": (
        "MergePolicy.merge_target",
        "MergePolicy.is_alive",
        "MergePolicy.is_equal",
        "KVCacheGroup._merge",
    ),
    "BlockFreed": ("BlockPool.reused_first", "KVCacheGroup.free", "KVCacheGroup._release"),
    "BlockFreed:preempted": (
        "Scheduler._preempt_for",
        "BlockPool.reused_first",
        "KVCacheGroup.free",
        "KVCacheGroup._release",
    ),
    "BlockFreed:merged": ("MergePolicy.merge_target", "BlockPool.reused_first", "KVCacheGroup._release"),
    "BlockFreed:window": (
        "SlidingWindowGroup.num_skipped_tokens",
        "BlockPool.reused_first",
        "KVCacheGroup.drop_skipped",
        "KVCacheGroup._release",
    ),
    "SlotsWritten": ("KVCacheManager.slot_runs", "BlockPool.null_block", "Engine._forward"),
    "ForwardRan": ("Scheduler.schedule", "Engine._forward"),
    "TokensComputed": ("Scheduler._book_computed",),
    "TokenSampled": ("Scheduler.update", "Scheduler._append_token"),
    "ViolationFound": ("Watch._tell",),
}
"""Per kind of event, or kind:variant (see `labengine_widgets.why`): the method that decides it, others that had a say,
and last the one that emits it."""


def seams_of(parts: Parts) -> dict[str, Seam]:
    """What decides each kind of event when these parts are at work: {"BlockMerged": seam, "BlockFreed:window": ...}.

    A method that the parts do not have (an edition that never preempts this way) is left out, and so is a kind for
    which none is left. Source that Python keeps no text of is told as such, in its place.
    """
    owners = _owners(parts)
    found = {kind: _seam(list(_methods(names, owners))) for kind, names in DECIDED_BY.items()}
    return {kind: seam for kind, seam in found.items() if seam is not None}


def _owners(parts: Parts) -> dict[str, type]:
    from labengine.check.watch import Watch
    from labengine.engine.engine import Engine
    from labengine.engine.transfers import Transfers

    return {
        "Scheduler": parts.scheduler,
        "KVCacheManager": parts.kv_cache_manager,
        "KVCacheGroup": parts.full_attention_group,
        "SlidingWindowGroup": parts.sliding_window_group,
        "BlockPool": parts.block_pool,
        "HashChain": parts.hash_chain,
        "MergePolicy": parts.merge_policy,
        "PrefixLookup": PrefixLookup,
        "ExternalLoads": ExternalLoads,
        "Parts": type(parts),
        "Engine": Engine,
        "Transfers": Transfers,
        "Watch": Watch,
    }


def _methods(names: tuple[str, ...], owners: dict[str, type]) -> Iterator[Method]:
    for name in names:
        owner, attribute = name.split(".")
        if (method := method_of(owners[owner], attribute, owner)) is not None:
            yield method


def _seam(methods: list[Method]) -> Seam | None:
    if not methods:
        return None
    told = [method.to_dict() for method in methods]
    told[-1]["is_emitter"] = True
    told.sort(key=lambda method: not method["is_custom"])  # what somebody replaced is what one came to see
    return told[0] | {"methods": told[1:]}
