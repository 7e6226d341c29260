"""The decisions that change nothing: asked twice on the same state, production's method gives the same answer."""

from __future__ import annotations

PURE_DECISIONS = {
    "Scheduler": (
        "next_waiting",
        "skips",
        "longest_chunk",
        "clipped",
        "choose_victim",
        "finish_reason",
        "refuse_what_never_fits",
    ),
    "KVCacheManager": (
        "find_prefix",
        "longest_hit",
        "can_admit",
        "has_blocks_for",
        "num_registrable_tokens",
        "slot_runs",
        "external_blocks",
        "local_hits",
        "transfers",
        "num_blocks_needed",
        "needs_tokens_to_allocate",
    ),
    "KVCacheGroup": (
        "find_hit",
        "cached_run",
        "cached_block",
        "num_missing_blocks",
        "num_blocks_to_admit",
        "max_blocks_held",
        "num_skipped_tokens",
        "is_worth_caching",
        "caches_every_block",
        "has_every_shorter_hit",
        "freeing_order",
        "block_hashes",
        "tier_hashes",
        "window",
        "num_blocks_for_hit",
        "chunk_end",
        "slots",
        "num_steps_in_flight",
    ),
    "Drafts": ("num_wanted", "num_affordable", "num_accepted"),
    "WaitingQueue": ("priority", "order", "least_urgent"),
    "BlockPool": ("reused_first", "null_block"),
    "HashChain": ("root", "keyed", "link"),
    "MergePolicy": ("merge_target", "is_alive", "mapped_after", "is_equal"),
    "PrefixTree": ("find", "child_of", "num_equal", "held_by", "next_leaf"),
}
"""Per base class of a part, the names of its pure decisions, and of the attributes that are decisions.

Methods that ask the external tier are left out, because a tier may count its look-ups and answer differently the second
time. So is the free queue, which is itself the state.
"""

LOOK_UPS = ("find_prefix", "longest_hit", "find_hit", "cached_run", "cached_block")
"""Decisions that search the cache: an override must find no less than the replaced method (rule `longest`)."""


REFUSALS = ("refuse_what_never_fits",)
"""Pure decisions whose answer is whether they raise ConfigError."""


def is_pure(method: str, *, changed_by_look_ups: bool = False) -> bool:
    """Return True for the name of a pure decision. changed_by_look_ups: a look-up changes the cache, and is not one."""
    return method in _NAMES and not (changed_by_look_ups and method in LOOK_UPS)


_NAMES = frozenset(name for names in PURE_DECISIONS.values() for name in names)
