"""mini-sglang's tree: whole leaves are evicted, and a split keeps the age of what it splits off."""

from __future__ import annotations

from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request


class WholeLeafTree(PrefixTree):
    """Gives back more than is asked for, and touches only nodes that match as a whole.

    Source: mini-sglang's RadixPrefixCache (20fcd7f).
    """

    def match(self, request: Request, num_blocks: int) -> Node:
        """Return the node that ends the longest cached prefix. The upper half of a split node keeps its age."""
        path, end = self.find(request, num_blocks)
        node = path[-1] if path else self.root
        if end < node.end:
            node = self.split(path.pop(), end - node.first_index)
        self.touch(path)
        return node

    def evict(self, num_blocks: int) -> None:
        """Evict whole leaves until at least num_blocks blocks are given back, or no leaf is left."""
        while num_blocks > 0 and (leaf := self.next_leaf()) is not None:
            num_blocks -= len(leaf.block_ids)
            self.remove(leaf, "reused")
