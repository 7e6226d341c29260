"""The rule `tier`: a request relies on the external tier only for content that, by its events, the tier has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labengine import events as ev
from labengine.core.block import Key
from labengine.core.connector import Connector
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.part_methods import class_name, is_custom, is_method
from labengine.core.request import Request
from labengine.record.snapshot import map_key
from labengine.record.violation import Violation


class TierContent:
    """Keys of the external tier's content, according to the events of all engines watched one after another.

    A tier is not judged if others may change its content: if it does not count what it keeps (Connector.num_kept), or
    has kept more than the events say.
    """

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._num_kept = 0
        self._is_saving = False
        """True from the plan of a step with saves until BlocksSaved: a step that fails in between may have saved."""

    def begin(self, connector: Connector | None) -> None:
        """Follow a new engine. An empty tier starts over; any other keeps what earlier engines have saved."""
        if connector is None or connector.num_kept() == 0:
            self._keys.clear()
            self._num_kept = 0

    def note_plan(self, has_saves: bool) -> None:
        """Note that a step may save."""
        self._is_saving = has_saves

    def note_saved(self, event: ev.BlocksSaved) -> None:
        """Note content that a step has saved."""
        self._keys.update((group, block_hash) for group, _, _, block_hash in event.transfers)
        self._num_kept += len(event.transfers)
        self._is_saving = False

    def note_changed(self, event: ev.TierChanged) -> None:
        """Note content that has left the tier, and content that was put there by hand."""
        self._keys.difference_update(event.dropped)
        self._keys.update(event.added)
        self._num_kept += len(event.added)

    def take_back(self) -> None:
        """Note a rollback: what the tier has saved stays there, and no event shows whether it was asked to save."""
        if self._is_saving:
            self._num_kept = -1
        self._is_saving = False

    def judge(
        self, event: ev.ExternalHit, num_local: int, request: Request, groups: Sequence[KVCacheGroup], tier: Connector
    ) -> Violation | None:
        """Return the violation of a request that relies on content which, by the events, the tier does not have.

        num_local: tokens of the prefix hit before it.
        """
        if tier.num_kept() != self._num_kept:
            return None
        for group, index in _entries(groups, num_local, num_local + event.num_tokens):
            key = group.index, next(iter(group.tier_hashes(request, index, index + 1)), b"")
            if key not in self._keys:
                first = index * group.block_size
                text = (
                    f"request {event.request_id} relies on the external tier for its tokens {first} to "
                    f"{first + group.block_size - 1} ({map_key(*key)[:12]}), but no event says that the tier has them"
                )
                return Violation("tier", text, (event.request_id,))
        return None


def _entries(groups: Sequence[KVCacheGroup], start: int, end: int) -> Iterator[tuple[KVCacheGroup, int]]:
    """Yield (group, table index) of the blocks that the tier has to fill for tokens [start, end)."""
    for group in groups:
        first = max(start, group.num_skipped_tokens(end)) // group.block_size
        yield from ((group, index) for index in range(first, end // group.block_size))


def store_overrides(tier: Connector) -> str:
    """Return a tier's methods from outside labengine, as " (overridden: ...)"; empty for none."""
    classes = [cls for cls in type(tier).__mro__ if issubclass(cls, Connector)]
    names = dict.fromkeys(name for cls in classes for name, value in vars(cls).items() if is_method(value))
    definers = {name: [cls for cls in classes if name in vars(cls)] for name in names if name != "__init__"}
    methods = [f"{class_name(by[0])}.{name}" for name, by in definers.items() if len(by) > 1 and is_custom(by[0])]
    if not methods and isinstance(inner := getattr(tier, "inner", None), Connector):
        return store_overrides(inner)
    return f" (overridden: {', '.join(methods)})" if methods else ""
