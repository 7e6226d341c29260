"""What became of one entry of the prefix map: each event that told of it, and the blocks it led to before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from labengine import events as ev
from labengine.fold import Key
from labengine_widgets.why.past import Past


class Turn(NamedTuple):
    """A registration under the key, or the eviction of a block that had it."""

    number: int
    event: ev.BlockCached | ev.BlockEvicted
    before: tuple[int, ...]
    """The blocks that the map had under the key, the one served first."""
    after: tuple[int, ...]

    @property
    def is_end(self) -> bool:
        """True for the eviction that took the key out of the map."""
        return bool(self.before) and not self.after

    def turns_from(self, block_id: int) -> bool:
        """True for a registration that took the entry away from a block which keeps its content."""
        return isinstance(self.event, ev.BlockCached) and block_id in self.before and block_id not in self.after


def turns_of(past: Past, key: Key, stop: int | None = None) -> list[Turn]:
    """Every turn of a key up to a moment (by default the question's), oldest first; from the recording's beginning."""
    turns: list[Turn] = []
    holders = {block_id for block_id, keys in enumerate(past.begin.block_keys) if key in keys}
    mapped = past.begin.prefix_map.get(key, ())
    for number, event in past.surviving(past.first, stop):
        if isinstance(event, ev.BlockCached) and (event.group, event.block_hash) == key:
            holders.add(event.block_id)
            after = event.mapped or mapped
        elif isinstance(event, ev.BlockEvicted) and event.block_id in holders:
            holders.discard(event.block_id)
            after = tuple(block_id for block_id in mapped if block_id != event.block_id)
        else:
            continue
        turns.append(Turn(number, event, mapped, after))
        mapped = after
    return turns


def end_of(turns: Iterable[Turn]) -> Turn | None:
    """The last eviction that took the key out of the map; None where it never was in it, or never left."""
    return next((turn for turn in reversed(list(turns)) if turn.is_end), None)


def registration_of(turns: Iterable[Turn], block_id: int) -> Turn | None:
    """The last registration of a block under the key."""
    own = (t for t in reversed(list(turns)) if isinstance(t.event, ev.BlockCached) and t.event.block_id == block_id)
    return next(own, None)
