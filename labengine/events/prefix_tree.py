"""Events of a prefix tree: its nodes, their locks, and the order in which they were last used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from labengine.events.event import Event, methods
from labengine.events.fields import (
    EvictReason,
    GainingBlock,
    GroupNumber,
    LosingBlock,
    NodeId,
    QueueEnd,
    RequestId,
)

_LOOKED_UP = (
    "PrefixTree.find PrefixTree.child_of PrefixTree.num_equal PrefixLookup.longest_hit KVCacheManager.find_prefix "
    "KVCacheGroup.node_of_hit KVCacheManager.refresh_prefix Scheduler.refresh_interval Scheduler.most_refreshed"
)
_REGISTERED = (
    "KVCacheManager.num_registrable_tokens KVCacheManager.insert KVCacheManager.keep KVCacheManager.fork "
    "KVCacheManager.free Scheduler.chunked KVCacheManager.register KVCacheGroup.register KVCacheGroup.insert"
)
_FORGOTTEN = "BlockPool.evict_cached PrefixTree.forget PrefixTree.remove"


@dataclass(frozen=True, slots=True)
class NodeInserted(Event):
    """A leaf was added to the prefix tree, as its youngest node. Each of its blocks got a reference from the tree.

    A BlockCached for each block follows.
    """

    node_id: NodeId
    parent_id: NodeId
    """0 for the root."""
    request_id: RequestId
    """The request that computed the blocks."""
    group: GroupNumber
    first_index: int
    """Blocks before this node's first, from the root on; also their place in the request's table."""
    block_ids: tuple[GainingBlock, ...]

    topic = "block"
    decided_by = {"": methods("PrefixTree.insert", _REGISTERED, "PrefixTree.add_leaf")}


@dataclass(frozen=True, slots=True)
class NodeSplit(Event):
    """A node's first blocks moved to a new node between it and its parent, with equal locks and recency."""

    node_id: NodeId
    """The lower node: it keeps its id, its children, and the locks that begin at it."""
    upper_id: NodeId
    num_blocks: int
    """Blocks of the upper node."""

    topic = "block"
    decided_by = {"": methods("PrefixTree.match PrefixTree.insert", _LOOKED_UP, _REGISTERED, "PrefixTree.split")}


@dataclass(frozen=True, slots=True)
class NodesTouched(Event):
    """Nodes became the youngest, in this order: the last one is evicted last."""

    node_ids: tuple[NodeId, ...]

    topic = "block"
    decided_by = {"": methods("PrefixTree.match PrefixTree.insert", _LOOKED_UP, _REGISTERED, "PrefixTree.touch")}


@dataclass(frozen=True, slots=True)
class NodeLocked(Event):
    """A request locked a node and all above it: none of them is evicted while it is locked."""

    node_id: NodeId
    request_id: RequestId

    topic = "block"
    decided_by = {
        "": methods(
            "KVCacheGroup.add_hit KVCacheGroup.node_of_hit KVCacheManager.fork KVCacheGroup.add_shared",
            "KVCacheGroup.register KVCacheGroup.insert PrefixTree.held_by PrefixTree.lock",
        )
    }


@dataclass(frozen=True, slots=True)
class NodeUnlocked(Event):
    """A request gave up its lock on a node and all above it."""

    node_id: NodeId
    request_id: RequestId

    topic = "block"
    decided_by = {
        "": methods(
            "KVCacheGroup.free KVCacheManager.free KVCacheGroup.register KVCacheGroup.insert PrefixTree.held_by",
            "PrefixTree.forget PrefixTree.unlock",
        )
    }


@dataclass(frozen=True, slots=True)
class NodeEvicted(Event):
    """A leaf, or only its end, left the prefix tree. The blocks lost the tree's reference.

    A BlockEvicted for each follows.
    """

    node_id: NodeId
    block_ids: tuple[LosingBlock, ...]
    """In table order; blocks that enter the queue at its head stand there in this order."""
    queue_end: QueueEnd | None
    """Where the blocks entered the free queue, whatever referred to them. None: requests still refer to them."""
    reason: Annotated[EvictReason, str] = "reused"
    num_kept: int = 0
    """Blocks that the leaf keeps, before those that left; 0 if the leaf itself has left."""

    topic = "block"
    decided_by = {
        "": methods(
            "PrefixTree.next_leaf BlockPool.take BlockPool.make_room Scheduler.make_room_for",
            "Scheduler.has_blocks_to_decode Scheduler.num_retract_steps BlockPool.reclaim BlockPool.freed_go_to",
            "PrefixTree.evict PrefixTree.remove",
        ),
        "reset": methods("KVCacheManager.reset_prefix_cache", _FORGOTTEN),
        "distrusted": methods("Scheduler.forget_written", _FORGOTTEN),
    }


def nodes_of(event: Event) -> set[int]:
    """Return the nodes that an event adds, changes or removes."""
    own = [getattr(event, name) for name in ("node_id", "upper_id") if hasattr(event, name)]
    return {*own, *getattr(event, "node_ids", ())}
