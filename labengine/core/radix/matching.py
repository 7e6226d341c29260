"""A look-up that changes the tree, as in mini-sglang and SGLang: it does so even for a request that must wait."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.prefix_lookup import Hit
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_lookup import TreeLookup
from labengine.core.request import Request


class MatchingLookup(TreeLookup):
    """Splits and touches as it looks up: a request that waits does so at every step."""

    changes_nothing = False

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        """Return the longest hit on at most max_tokens leading tokens; whole blocks only."""
        size = self.group.block_size
        node = self.group.tree.match(request, max_tokens // size)
        return Hit(node.end * size, (tuple(node.blocks_to_here()),))


class MatchedGroup(RadixGroup):
    """Locks the node at which the look-up ended, which it has split and touched."""

    def node_of_hit(self, request: Request, hit: Sequence[int]) -> Node:
        """Return the node that ends a hit, without touching it again; a hit that was shortened may end inside one."""
        node = self.tree.node_of[hit[-1]]
        return node if node.end == len(hit) else self.tree.split(node, len(hit) - node.first_index)
