"""mini-sglang's order of recency: a split keeps the age of what it splits off."""

from __future__ import annotations

from labengine.core.radix.node import Node
from labengine.core.radix.whole_leaf_tree import WholeLeafTree
from labengine.core.request import Request


class WholeMatchTree(WholeLeafTree):
    """Evicts whole leaves, and touches only nodes that match as a whole. Source: RadixPrefixCache (20fcd7f)."""

    def match(self, request: Request, num_blocks: int) -> Node:
        """Return the node that ends the longest cached prefix. The upper half of a split node keeps its age."""
        path, end = self.find(request, num_blocks)
        node = path[-1] if path else self.root
        if end < node.end:
            node = self.split(path.pop(), end - node.first_index)
        self.touch(path)
        return node
