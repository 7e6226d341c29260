"""SGLang's order of recency: what a walk passes becomes young, and so does the lower half of a node that it splits."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import Inserted
from labengine.core.radix.whole_leaf_tree import WholeLeafTree
from labengine.core.request import Request


class SglangPrefixTree(WholeLeafTree):
    """Evicts whole leaves; touches both halves of a split node. Source: UnifiedTreeCore, with full attention only."""

    def insert(self, request: Request, block_ids: Sequence[int]) -> Inserted:
        """Add what the tree lacks. The path is touched before a split, whose halves end up younger."""
        path, end = self.find(request, len(block_ids))
        node = path[-1] if path else self.root
        is_split = end < node.end
        self.touch(path[:-1] if is_split else path)
        if is_split:
            node = self.split(node, end - node.first_index)
        if end < len(block_ids):
            node = self.add_leaf(node, request, block_ids[end:])
        return Inserted(node, end)

    def split(self, node: Node, num_blocks: int) -> Node:
        """Split a node; both halves become the youngest, although the request does not use the lower one."""
        upper = super().split(node, num_blocks)
        self.touch((upper, node))
        return upper
