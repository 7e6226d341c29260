"""SGLang's order of recency: what a walk passes becomes young, and so does the lower half of a node that it splits."""

from __future__ import annotations

from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request


class SglangPrefixTree(PrefixTree):
    """Touches whole paths, and both halves of a split node. Source: UnifiedTreeCore, with full attention only."""

    def match(self, request: Request, num_blocks: int) -> Node:
        """Return the node that ends the longest cached prefix; the whole path to it becomes the youngest."""
        node = self.end_of(self.walk(request, num_blocks))
        self.touch(node.path())
        return node

    def match_to_insert(self, request: Request, num_blocks: int) -> Node:
        """Return the node below which to insert. Its path is touched before the split, whose halves end up younger."""
        walk = self.walk(request, num_blocks)
        self.touch(walk.nodes)
        return self.end_of(walk)

    def split(self, node: Node, num_blocks: int) -> Node:
        """Split a node; both halves become the youngest, although the request does not use the lower one."""
        upper = super().split(node, num_blocks)
        self.touch((upper, node))
        return upper
