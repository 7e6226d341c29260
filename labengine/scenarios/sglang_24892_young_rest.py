"""SGLang pull request 24892: the part of a cached prefix that a request does not use becomes young."""

from __future__ import annotations

from labengine.core.radix.node import Node
from labengine.core.radix.whole_leaf_tree import WholeLeafTree
from labengine.core.sglang.prefix_tree import SglangPrefixTree
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import Column, Scenario


class LeavesTheRest(SglangPrefixTree):
    """Leaves the half of a split node that the request does not use as old as it was."""

    def split(self, node: Node, num_blocks: int) -> Node:
        """Split a node without touching the lower half; `match` touches the upper one."""
        return WholeLeafTree.split(self, node, num_blocks)


class YoungRest(Scenario):
    """A and Z leave prefixes in the tree, B leaves A's halfway, and D needs memory; E comes back for Z's."""

    columns = (Column("sglang"), Column("sglang", LeavesTheRest))
    figures = {
        "tokens found": lambda lab: num_hit_tokens(lab, 4),
        "tokens computed": num_computed_tokens,
    }
    follow_up_question = "Does E find the prefix that Z has left?"
    follow_ups = (lambda lab: lab.add(token_ids=[*range(21, 29), 61], max_tokens=1), lambda lab: lab.step())

    def play(self, lab: Lab) -> None:
        """Run all five."""
        self.opening(lab)
        self.follow_up(lab)

    def opening(self, lab: Lab) -> None:
        """Run A, Z, B and D, one after the other."""
        for prompt in (range(1, 13), range(21, 29), [*range(1, 9), 51], range(41, 57)):
            lab.generate([prompt], max_tokens=1)
