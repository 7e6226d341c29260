"""mini-sglang pull request 52: the walk that locks a prefix begins one node too high."""

from __future__ import annotations

from labengine.core.mini_sglang.prefix_tree import WholeMatchTree
from labengine.core.radix.node import Node
from labengine.core.request import Request
from labengine.lab import Lab
from labengine.scenarios.counts import num_misread_requests, num_rules
from labengine.scenarios.scenario import Column, Scenario


class LocksFromTheParent(WholeMatchTree):
    """Leaves out the node that a request has matched, when it locks and when it unlocks."""

    def lock(self, node: Node, request: Request) -> None:
        """Lock the nodes above the matched one. `unlock` begins where the lock began, so both are one node off."""
        super().lock(node.parent or node, request)


class LockWalk(Scenario):
    """A leaves its prefix in the tree, B reads it, and C needs more blocks than are free."""

    columns = (Column("mini-sglang", LocksFromTheParent), Column("mini-sglang"))
    figures = {
        "rules broken": num_rules,
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B's prompt; add C, and take two steps."""
        lab.add(token_ids=range(1, 10), max_tokens=1)
        lab.step()
        lab.add(token_ids=[*range(1, 9), 10], max_tokens=3)
        lab.step()
        lab.add(token_ids=range(101, 114), max_tokens=1)
        lab.step(2)
