"""The longest cached prefix that all KV-cache groups agree on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request


class Hit(NamedTuple):
    """A prefix found in the cache: num_tokens computed tokens in these blocks per group, not yet touched."""

    num_tokens: int
    block_ids: tuple[tuple[int, ...], ...]
    longest: int = 0
    """Longest hit of a single kind of group, before the other kinds shortened it."""

    @property
    def shared_prefix_boundary(self) -> int:
        """End of a prefix that some groups hold and others have dropped; 0 if they agree."""
        return self.longest if self.longest > self.num_tokens else 0


class PrefixLookup:
    """Finds a hit that all groups accept, asking kind by kind, full attention first.

    Full attention bounds the hit fastest. A kind either accepts the length or shortens it; then the others are asked
    again, until all accept it. Lengths only shrink, so this ends. Source: vLLM's HybridKVCacheCoordinator.
    """

    changes_nothing = True
    """False for a look-up that changes the cache: the checks do not ask production's beside an override."""

    def __init__(self, groups: Sequence[KVCacheGroup]) -> None:
        self._groups = groups
        kinds: dict[object, list[KVCacheGroup]] = {}
        for group in groups:
            kinds.setdefault(group.spec, []).append(group)
        self._kinds = sorted(kinds.values(), key=lambda siblings: siblings[0].spec.kind != "full")

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit on at most max_tokens leading tokens. Touches nothing."""
        if len(self._groups) == 1:
            (group,) = self._groups
            (block_ids,) = group.find_hit(request, max_tokens, self._groups)
            return Hit(len(block_ids) * group.block_size, (tuple(block_ids),))
        found: dict[int, list[int]] = {}
        accepted, length, longest = 0, max_tokens, 0
        for siblings in cycle(self._kinds):
            if accepted == len(self._kinds):
                break
            first = siblings[0]
            if first.has_every_shorter_hit and first.index in found:
                accepted += 1
                continue
            hits = first.find_hit(request, length, siblings)
            num_tokens = len(hits[0]) * first.block_size
            accepted = accepted + 1 if num_tokens == length else 1
            length, longest = num_tokens, max(longest, num_tokens)
            found.update((group.index, hit) for group, hit in zip(siblings, hits, strict=True))
        sizes = [group.block_size for group in self._groups]
        return Hit(length, tuple(tuple(found[i][: length // size]) for i, size in enumerate(sizes)), longest)
