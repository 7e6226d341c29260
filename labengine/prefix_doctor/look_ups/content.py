"""The content of the cache while events are applied, and how earlier content was lost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.fold_state import Key


@dataclass(frozen=True, slots=True)
class LostContent:
    """The loss of a cached block. reason: as in BlockEvicted. step: that of the loss.

    request_id: the request that took the block; None if none did. is_prefill: it took the block for its prompt.
    """

    reason: ev.EvictReason
    step: int
    event: int
    """Number of the BlockEvicted among the events of the recording."""
    request_id: int | None = None
    is_prefill: bool = False


class CachedContent:
    """The folded state, and each lost key's last loss. A key is (group, block hash)."""

    def __init__(self, first: Fold) -> None:
        self.state = first.copy()
        self.losses: dict[Key, LostContent] = {}
        self._tails: set[Key] = set()
        """Keys of prompts that end inside their block, which no look-up for complete blocks finds."""
        self._unattributed: dict[int, list[Key]] = {}
        """Keys that were lost with a block whose next owner is still unknown."""
        self.num_events = 0
        """Number of applied events."""
        self._num_kept = len(first.ref_counts) - (first.null_block >= 0)
        """A lower bound of the number of blocks not allocated since the first event."""

    def is_cached(self, key: Key) -> bool:
        """Return True if a look-up finds a block under this key."""
        return key in self.state.prefix_map

    @property
    def has_turned_over(self) -> bool:
        """True once as many blocks were allocated as the pool has."""
        return self._num_kept <= 0

    def apply(self, event: ev.Event) -> None:
        """Apply the next event."""
        lost: tuple[Key, ...] = ()
        match event:
            case ev.BlockEvicted(block_id):
                lost = self.state.block_keys[block_id]
            case ev.BlockCached(group=group, block_hash=block_hash, is_full=False):
                self._tails.add((group, block_hash))
            case ev.BlockAllocated():
                self._num_kept -= 1
                self._attribute(event)
        self.state.apply(event)
        if isinstance(event, ev.BlockEvicted):
            gone = [key for key in lost if key not in self.state.prefix_map]
            self.losses.update(dict.fromkeys(gone, LostContent(event.reason, self.state.step, self.num_events)))
            self._unattributed[event.block_id] = gone
        self.num_events += 1

    def full_key(self, block_id: int, group: int) -> Key | None:
        """Return the key under which a complete block is cached in a group; None for a block without content."""
        keys = [key for key in self.state.block_keys[block_id] if key[0] == group and key not in self._tails]
        return keys[-1] if keys else None

    def _attribute(self, event: ev.BlockAllocated) -> None:
        request = self.state.requests.get(event.request_id)
        position = event.index * self.state.groups[event.group].block_size
        is_prefill = request is not None and position < request.num_prompt_tokens
        for key in self._unattributed.pop(event.block_id, ()):
            loss = self.losses[key]
            if loss.reason == "reused" and loss.request_id is None:
                self.losses[key] = replace(loss, request_id=event.request_id, is_prefill=is_prefill)
