"""KV on its way to and from a tier outside the pool."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.events.event import Event, InVllm, methods
from labengine.events.fields import GroupKey, GroupNumber, RequestId, SavedTransfer, Transfer


@dataclass(frozen=True, slots=True)
class ExternalHit(Event):
    """The external tier holds the num_tokens tokens after the prefix hit. Blocks for them are about to be allocated.

    They count as computed at once, because the load precedes the forward pass. With is_loading they count only from
    BlocksLoaded on, and the request waits until then.
    """

    request_id: RequestId
    num_tokens: int
    is_loading: bool = False

    topic = "external tier"
    decided_by = {
        "": methods(
            "Scheduler.match_external ExternalLoads.match ExternalLoads.is_async Connector.get_num_new_matched_tokens",
            "Connector.has Connector.loads_are_async KVCacheGroup.tier_hashes KVCacheManager.admit",
        ),
    }
    in_vllm = {
        "": InVllm(
            "manager",
            "allocate_slots",
            "Blocks are taken for the tokens that the connector holds after the prefix hit.",
        )
    }


@dataclass(frozen=True, slots=True)
class BlocksLoaded(Event):
    """K and V came from the external tier into blocks of a request."""

    request_id: RequestId
    transfers: tuple[Transfer, ...]

    topic = "external tier"
    decided_by = {
        "": methods(
            "KVCacheManager.external_blocks KVCacheManager.local_hits KVCacheManager.transfers",
            "KVCacheGroup.tier_hashes ExternalLoads.load ExternalLoads.wait_for ExternalLoads.take_loads",
            "ExternalLoads.blocks_of Connector.update_state_after_alloc Connector.start_load_kv Connector.get_finished",
            "Connector.wait Connector.cancel Scheduler.take_arrived Transfers.load",
        ),
    }
    in_vllm = {
        "": InVllm(
            "scheduler", "_update_from_kv_xfer_finished", "The connector's worker reports that the load is complete."
        )
    }


@dataclass(frozen=True, slots=True)
class BlocksSaved(Event):
    """K and V of full blocks were copied to the external tier."""

    request_id: RequestId
    transfers: tuple[SavedTransfer, ...]

    topic = "external tier"
    phase = "any"
    decided_by = {
        "": methods(
            "Scheduler.choose_saves ExternalLoads.saves KVCacheManager.transfers KVCacheGroup.tier_hashes",
            "Connector.has Connector.save_kv Transfers.save",
        ),
    }


@dataclass(frozen=True, slots=True)
class LoadFailed(Event):
    """The external tier could not deliver the blocks: the request will recompute their tokens."""

    request_id: int
    """The request may already be forgotten."""
    reason: str

    topic = "trouble"
    decided_by = {
        "": methods(
            "Transfers.forget Connector.start_load_kv Connector.get_finished Connector.forget",
            "ExternalLoads.last_failure Scheduler.take_arrived",
        ),
    }
    in_vllm = {
        "": InVllm(
            "scheduler", "_handle_invalid_blocks", "The connector's worker reports blocks that it could not load."
        )
    }


@dataclass(frozen=True, slots=True)
class TierChanged(Event):
    """The external tier's content changed without a save by this engine.

    Contents are identified by (group, block hash). Content that was dropped and added is present again.
    """

    added: tuple[GroupKey, ...]
    """Contents put there for the lab, as if another engine had computed them."""
    dropped: tuple[GroupKey, ...]
    """Contents evicted, or forgotten because they could not be read."""
    pinned: tuple[tuple[GroupNumber, bytes, int], ...] = ()
    """(group, block hash, number of transfers that prevent its eviction); 0 once the last one has released its pin."""

    topic = "external tier"
    phase = "any"
    decided_by = {"": ("Connector.take_changes", "Transfers._emit_changes")}
