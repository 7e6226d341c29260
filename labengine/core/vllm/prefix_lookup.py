"""vLLM's look-up: with a drafter that reads hidden states, hits drop the last block found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from labengine.core.kv_cache_group import GroupHit, KVCacheGroup
from labengine.core.prefix_lookup import Hit, PrefixLookup
from labengine.core.request import Request
from labengine.core.vllm.partial_hits import PartialHits


class VllmPrefixLookup(PrefixLookup):
    """A look-up in which, with EAGLE, groups drop the last block found: the head needs hidden states of its tokens.

    Of several groups, each that drops a block looks one block past the length that the others accept, and drops that
    block; if hits may end inside a block, one link of the hash chain. Source: vLLM's
    HybridKVCacheCoordinator.find_longest_cache_hit (0.32).
    """

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit on at most max_tokens leading tokens, without dropped blocks."""
        if not any(group.drops_last_block or may_end_inside(group) for group in self._groups):
            return super().longest_hit(request, max_tokens)
        if len(self._groups) == 1:
            (group,) = self._groups
            (block_ids,) = group.find_dropped_hit(request, max_tokens, self._groups)
            return Hit(len(block_ids) * group.block_size, (tuple(block_ids),))
        found: dict[int, list[int]] = {}
        lengths: dict[int, int] = {}
        dropped: set[int] = set()
        is_simple = len(self._kinds) == 2 and self._kinds[0][0].spec.kind == "full"
        length, longest = max_tokens, 0
        while True:
            num_tokens = length
            for siblings in self._kinds:
                first = siblings[0]
                if first.has_every_shorter_hit and first.index in found:
                    num_tokens = min(num_tokens, lengths[first.index])
                    continue
                before, drops = num_tokens, first.drops_last_block and first.index not in dropped
                limit = min(num_tokens + _margin(first), request.num_tokens) if drops else num_tokens
                num_tokens, hits = _found(request, limit, siblings, drops=drops)
                if drops:
                    dropped.add(first.index)
                elif num_tokens < before:
                    dropped.clear()
                found.update((group.index, hit) for group, hit in zip(siblings, hits, strict=True))
                lengths[first.index] = num_tokens
                longest = max(longest, num_tokens)
            if num_tokens >= length:
                break
            length = num_tokens
            if is_simple:
                break
        sizes = [group.block_size for group in self._groups]
        return Hit(length, tuple(tuple(found[i][: -(-length // size)]) for i, size in enumerate(sizes)), longest)


def may_end_inside(group: KVCacheGroup) -> TypeGuard[PartialHits]:
    """Return True if hits may end inside a block of this group."""
    return isinstance(group, PartialHits) and group.has_partial_hits


def _margin(group: KVCacheGroup) -> int:
    """Return how many tokens past the others' length a group may find, to drop them; none for states."""
    if group.keeps_states:
        return 0
    return group.hit_unit if may_end_inside(group) else group.block_size


def _found(request: Request, limit: int, siblings: Sequence[KVCacheGroup], *, drops: bool) -> tuple[int, GroupHit]:
    first = siblings[0]
    if may_end_inside(first):
        return first.find_partial_hit(request, limit, siblings, drops=drops)
    hits = (first.find_dropped_hit if drops else first.find_hit)(request, limit, siblings)
    return len(hits[0]) * first.block_size, hits
