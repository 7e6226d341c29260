"""mini-sglang pull request 124: a prefix that was just used is evicted, because it was split off an old node."""

from __future__ import annotations

from labengine.core.mini_sglang.prefix_tree import WholeMatchTree
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import Column, Scenario


class TouchesTheSplitHalf(WholeMatchTree):
    """Makes the half of a split node that a request uses the youngest, like all nodes that it matches."""

    def match(self, request: Request, num_blocks: int) -> Node:
        """Return the node that ends the longest cached prefix, touched even if it was split off."""
        return PrefixTree.match(self, request, num_blocks)


class StaleHalf(Scenario):
    """A and Z leave prefixes in the tree, B uses the beginning of A's, and D needs memory; E comes back for it."""

    columns = (Column("mini-sglang"), Column("mini-sglang", TouchesTheSplitHalf))
    figures = {
        "tokens found": lambda lab: num_hit_tokens(lab, 4),
        "tokens computed": num_computed_tokens,
    }
    follow_up_question = "Does E find the prefix that B has used?"
    follow_ups = (lambda lab: lab.add(token_ids=[*range(1, 9), 61], max_tokens=1), lambda lab: lab.step())

    def play(self, lab: Lab) -> None:
        """Run all five."""
        self.opening(lab)
        self.follow_up(lab)

    def opening(self, lab: Lab) -> None:
        """Run A, Z, B and D, one after the other."""
        for prompt in (range(1, 14), range(21, 30), range(1, 9), range(41, 58)):
            lab.generate([prompt], max_tokens=1)
