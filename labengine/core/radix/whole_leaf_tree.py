"""A tree that evicts whole leaves, as in mini-sglang and SGLang."""

from __future__ import annotations

from labengine.core.radix.prefix_tree import PrefixTree


class WholeLeafTree(PrefixTree):
    """Gives back more than is asked for, instead of shortening a leaf."""

    def evict(self, num_blocks: int) -> None:
        """Evict whole leaves until at least num_blocks blocks are given back, or no leaf is left."""
        while num_blocks > 0 and (leaf := self.next_leaf()) is not None:
            num_blocks -= len(leaf.block_ids)
            self.remove(leaf, "reused")
