"""mini-sglang's look-up, which changes the tree even if the request is then refused."""

from __future__ import annotations

from typing import cast

from labengine.core.mini_sglang.full_attention import MatchedGroup
from labengine.core.prefix_lookup import Hit
from labengine.core.radix.prefix_lookup import TreeLookup
from labengine.core.request import Request


class MatchingLookup(TreeLookup):
    """Splits and touches as it looks up: a request that waits does so at every step."""

    changes_nothing = False

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit on at most max_tokens leading tokens; whole blocks only."""
        group = cast(MatchedGroup, self._groups[0])
        node = group.tree.match(request, max_tokens // group.block_size)
        return Hit(node.end * group.block_size, (tuple(node.blocks_to_here()),))
