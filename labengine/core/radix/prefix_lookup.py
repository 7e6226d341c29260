"""The look-up in a prefix tree."""

from __future__ import annotations

from typing import cast

from labengine.core.prefix_lookup import Hit, PrefixLookup
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.request import Request


class TreeLookup(PrefixLookup):
    """Finds the longest cached prefix by walking down the tree, which the walk changes: see PrefixTree.match."""

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit on at most max_tokens leading tokens; whole blocks only."""
        group = cast(RadixGroup, self._groups[0])
        node = group.tree.match(request, max_tokens // group.block_size)
        return Hit(node.end * group.block_size, (tuple(node.blocks_to_here()),))
