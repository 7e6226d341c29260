"""Evictions of cached blocks, each with the request that took the block and the one that had held it."""

from __future__ import annotations

from dataclasses import dataclass

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.snapshot import GroupState


@dataclass(frozen=True, slots=True)
class Eviction:
    """One cached block lost its content.

    by: "prefill" or "decode" of the request that took the block, or the event's reason if no request did. request_id:
    that request, or None. owner: the last request that held the block; None if unknown.
    """

    by: str
    request_id: int | None
    owner: int | None


class Evictions:
    """Follows events from a state on."""

    def __init__(self, first: Fold) -> None:
        self._groups = first.groups
        self._num_prompt = {i: one.num_prompt_tokens for i, one in first.requests.items()}
        tables = [(i, table) for i, one in first.requests.items() for table in one.block_tables]
        self._owners = {block_id: i for i, table in tables for block_id in table}
        self._taken: set[int] = set()
        """Evicted blocks whose next holder is the next event about them."""

    def follow(self, event: ev.Event) -> Eviction | None:
        """Follow one event; return the eviction that it completes, if any."""
        match event:
            case ev.EngineStarted(groups=groups):
                self._groups = tuple(GroupState(*one) for one in groups)
            case ev.RequestAdded(request_id, token_ids):
                self._num_prompt[request_id] = len(token_ids) - event.num_generated
            case ev.RequestForgotten(request_id):
                self._num_prompt.pop(request_id, None)
            case ev.BlockEvicted(block_id, "reused"):
                self._taken.add(block_id)
            case ev.BlockEvicted(block_id, reason):
                return Eviction(reason, None, self._owners.get(block_id))
            case ev.BlockAllocated(block_id) | ev.BlockTouched(block_id):
                return self._held(block_id, event)
            case _ if isinstance(event, ev.EntryReplaced):
                return self._held(event.into_block_id, event)
        return None

    def _held(self, block_id: int, event: ev.BlockAllocated | ev.BlockTouched | ev.EntryReplaced) -> Eviction | None:
        owner, request_id = self._owners.get(block_id), event.request_id
        self._owners[block_id] = request_id
        if block_id not in self._taken:
            return None
        self._taken.remove(block_id)
        is_prefill = event.index * self._groups[event.group].block_size < self._num_prompt.get(request_id, 0)
        return Eviction("prefill" if is_prefill else "decode", request_id, owner)
