"""The judge of one engine's prefix tree: after each phase, the nodes that events have named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from labengine import events as ev
from labengine.check.blame import Blamed, Suspects, decided_words
from labengine.check.state import RequestView
from labengine.check.stream import Stream
from labengine.check.tree_facts import seen
from labengine.check.tree_rules import FoundInTree, judge_tree
from labengine.core.block import Prefix
from labengine.core.block_pool import BlockPool
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.seams import deciding_methods
from labengine.record.tree_fold import NodeFold

TREE_EVENTS = (
    *(ev.NodeInserted, ev.NodeSplit, ev.NodesTouched, ev.NodeLocked, ev.NodeUnlocked, ev.NodeEvicted),
    *(ev.RequestFinished, ev.RequestPreempted),
)
"""The kinds after which the tree may break a rule: at its end, a request may leave a lock."""


class TreeJudge:
    """Judges what events have named since the last call, at the cost of the named nodes and of all locks."""

    def __init__(self, pool: BlockPool, requests: Mapping[int, RequestView], suspects: Suspects) -> None:
        self._state = None if pool.tree is None else LiveTree(pool, pool.tree)
        self._requests, self._suspects = requests, suspects
        self._named: set[int] = set()
        self._is_due = False

    def note(self, event: ev.Event) -> None:
        """Note an event of one of TREE_EVENTS."""
        self._named |= ev.nodes_of(event)
        self._is_due = True

    def judge(self, stream: Stream) -> list[Blamed]:
        """Return the violations, each with the newest event that may have caused it."""
        if self._state is None or not self._is_due:
            return []
        node_ids, self._named, self._is_due = sorted(self._named), set(), False
        return [self._blamed(found, stream) for found in judge_tree(self._state, self._requests, node_ids)]

    def _blamed(self, found: FoundInTree, stream: Stream) -> Blamed:
        causes = (one for one in reversed(stream.newest_events()) if found.may_be_from(one.event))
        cause = next(causes, None)
        number, event = (stream.last_number, None) if cause is None else cause
        has_ended = event is None or isinstance(event, (ev.RequestFinished, ev.RequestPreempted))
        methods = deciding_methods("NodeUnlocked" if event is None or has_ended else event)
        message = found.violation.message + decided_words(methods, self._suspects)
        return Blamed(replace(found.violation, message=message), number)


class LiveTree:
    """The tree of a running core."""

    def __init__(self, pool: BlockPool, tree: PrefixTree) -> None:
        self._blocks, self._tree = pool.blocks, tree

    @property
    def holds(self) -> Mapping[int, int]:
        return {request_id: node.node_id for request_id, node in self._tree.holds.items()}

    def node(self, node_id: int) -> NodeFold | None:
        node = self._tree.nodes.get(node_id)
        return None if node is None else seen(self._tree, node)

    def owner(self, block_id: int) -> int | None:
        node = self._tree.node_of.get(block_id)
        return None if node is None else node.node_id

    def is_referenced(self, block_id: int) -> bool:
        return self._blocks[block_id].ref_count > 0

    def misplaced(self, node_id: int) -> int | None:
        node = self._tree.nodes[node_id]
        above = [] if node.parent is None else node.parent.block_ids
        before = self._blocks[above[-1]].prefix if above else None
        for block_id, link in zip_longest(node.block_ids, node.links):
            prefix = None if block_id is None else self._blocks[block_id].prefix
            if prefix is None or prefix.token_ids != link or not _continues(prefix, before):
                return node.block_ids[0] if block_id is None else int(block_id)
            before = prefix
        return None


def _continues(prefix: Prefix, before: Prefix | None) -> bool:
    """Return True if a prefix is one link longer than `before`, or the first link if that is None."""
    above = prefix.parent
    if before is None:
        return above is not None and above.parent is None
    while above is not before:
        if above is None or before is None or above.token_ids != before.token_ids:
            return False
        above, before = above.parent, before.parent
    return True
