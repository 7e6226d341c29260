"""The look-up in a prefix tree."""

from __future__ import annotations

from typing import cast

from labengine.core.prefix_lookup import Hit, PrefixLookup
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.request import Request


class TreeLookup(PrefixLookup):
    """Finds the longest cached prefix by walking down the tree, which stays as it is until the request is admitted."""

    @property
    def group(self) -> RadixGroup:
        """The only group."""
        return cast(RadixGroup, self._groups[0])

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit on at most max_tokens leading tokens; whole blocks only. Touches nothing."""
        size = self.group.block_size
        path, num_blocks = self.group.tree.find(request, max_tokens // size)
        block_ids = [block_id for node in path for block_id in node.block_ids]
        return Hit(num_blocks * size, (tuple(block_ids[:num_blocks]),))
