"""Exercises of the notebook "Trees"."""

from __future__ import annotations

from labengine.core.mini_sglang.full_attention import UnmappedMergeGroup
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.predict_exercise import in_step
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import BlockAllocated, BlockEvicted, BlockFreed, NodeLocked, SlotsWritten

FIRST = [*range(1, 14)]
"""13 tokens: three blocks of 4, and one more."""
TREE = {"edition": "labengine-radix"}

course_exercise(
    "trees/nodes",
    play=plays((FIRST, 1), 1, ([*FIRST[:10], 50, 51, 52], 1), ([*FIRST[:6], *range(60, 67)], 1), (FIRST, 1)),
    truth=lambda step: len(step.after.tree),
    about="number",
    rounds=3,
    views=("tree",),
    mistakes=[in_step(2, 2), in_step(2, 4), in_step(3, 4), in_step(3, 6), in_step(4, 6)],
    num_blocks=24,
    max_num_seqs=1,
    **TREE,
)


course_exercise(
    "trees/next-leaf",
    play=plays(
        *((range(100, 109), 8), (FIRST, 1), 1),
        *(([*FIRST[:8], *range(60, 65)], 1), 1),
        *((range(200, 212), 1), (range(300, 308), 1)),
    ),
    truth=lambda step: step.of_kind(BlockEvicted)[-1].block_id,
    about="block",
    rounds=2,
    views=("tables", "pool"),
    mistakes=[
        [in_step(3, 0), in_step(3, 1)],
        [in_step(3, 3), in_step(3, 4)],
        in_step(3, 7),
        in_step(4, 3),
        in_step(4, 7),
    ],
    num_blocks=9,
    max_num_seqs=2,
    **TREE,
)


def evicted(nodes: list[tuple[int | None, int, int]], num_missing: int) -> list[int]:
    """Return the nodes that whole-leaf eviction takes. nodes: parent, blocks and locks of each, the oldest first."""
    gone: list[int] = []
    while num_missing > 0:
        left = [number for number in range(len(nodes)) if number not in gone]
        parents = {nodes[number][0] for number in left}
        leaves = [number for number in left if number not in parents and not nodes[number][2]]
        if not leaves:
            break
        gone.append(leaves[0])
        num_missing -= nodes[leaves[0]][1]
    return gone


def _in_order(nodes: list[tuple[int | None, int, int]], num_missing: int) -> list[int]:
    gone = []
    for number, (_, num_blocks, num_locks) in enumerate(nodes):
        if num_missing > 0 and not num_locks:
            gone.append(number)
            num_missing -= num_blocks
    return gone


def _leaves_at_first(nodes: list[tuple[int | None, int, int]], num_missing: int) -> list[int]:
    parents = {parent for parent, _, _ in nodes}
    return _in_order(
        [(None, size, number in parents or locks) for number, (_, size, locks) in enumerate(nodes)], num_missing
    )


course_exercise(
    "trees/evicted",
    solution=evicted,
    cases=[
        ([(None, 9, 0)], 3),
        ([(None, 2, 1), (None, 3, 0)], 1),
        ([(None, 2, 0), (0, 1, 0), (None, 4, 0)], 2),
        ([(None, 2, 1), (0, 3, 1), (0, 1, 0), (None, 5, 0)], 4),
        ([(None, 1, 0), (0, 1, 0), (1, 1, 0)], 2),
        ([(None, 1, 0), (0, 2, 0), (0, 2, 0), (None, 6, 0)], 5),
        ([(None, 2, 0), (None, 2, 0), (1, 9, 0)], 3),
        ([(None, 3, 0), (None, 3, 0)], 3),
        ([(None, 4, 1)], 3),
        ([(None, 4, 0)], 0),
    ],
    num_shown=3,
    num_lines=9,
    mistakes=[
        _in_order,
        _leaves_at_first,
        lambda nodes, num_missing: evicted([(parent, size, 0) for parent, size, _ in nodes], num_missing),
        lambda nodes, num_missing: evicted([(parent, 1, locks) for parent, _, locks in nodes], num_missing),
    ],
)


class KeepsTheRules(PrefixTree):
    """A tree that gives up its longest text first, and keeps the short ones, whatever their age."""

    def next_leaf(self) -> Node | None:
        """Return the longest leaf without locks; among equally long ones, the one touched longest ago."""
        leaves = [node for node in self.nodes.values() if not node.children and not node.num_locks]
        return max(leaves, key=lambda leaf: (len(leaf.block_ids), -leaf.touched), default=None)


def _oldest_node(self: PrefixTree) -> Node | None:
    return min(self.nodes.values(), key=lambda node: node.age, default=None)


def _longest_with_locks(self: PrefixTree) -> Node | None:
    leaves = [node for node in self.nodes.values() if not node.children]
    return max(leaves, key=lambda leaf: len(leaf.block_ids), default=None)


def _youngest(self: PrefixTree) -> Node | None:
    leaves = [node for node in self.nodes.values() if not node.children and not node.num_locks]
    return max(leaves, key=lambda leaf: leaf.touched, default=None)


RULES = [*range(1, 18)]
_questions_and_documents = plays(
    *(
        act
        for first in range(1000, 7000, 1000)
        for act in (
            ([*RULES, *range(first, first + 6)], 2),
            *(RUN, (range(first + 100, first + 138), 1)),
            *(RUN, (range(first + 200, first + 238), 1)),
            RUN,
        )
    )
)
"""Questions behind the same rules, with two documents after each, which nobody asks for again."""

_one_conversation = plays(
    *(
        act
        for turn in range(1, 7)
        for act in (([*RULES, *range(5000, 5000 + 6 * turn)], 2), RUN, (range(900 * turn, 900 * turn + 30), 1), RUN)
    )
)
"""A conversation that grows, with a document after each turn."""

_while_one_is_read = plays((range(800, 834), 6), ([*RULES, 90], 1), 1, (range(700, 730), 1), 2, ([*RULES, 91], 1), RUN)
"""A document that is in use, and another."""

course_exercise(
    "trees/keep-the-rules",
    solution=KeepsTheRules,
    workloads=[_questions_and_documents, _one_conversation, _while_one_is_read],
    score="tokens found",
    goal=250,
    num_lines=2,
    mistakes=[PrefixTree, _oldest_node, _longest_with_locks, _youngest],
    num_blocks=20,
    **TREE,
)


course_exercise(
    "trees/first-wrong",
    broken=UnmappedMergeGroup,
    play=plays(
        *((FIRST[:9], 3), ([*FIRST[:8], 50], 1), (FIRST[:9], 3), 1),
        *((range(100, 109), 1), (range(200, 209), 1), RUN),
    ),
    mistakes=[
        [nth_event(BlockFreed), nth_event(BlockFreed, 1)],
        nth_event(NodeLocked, request_id=2),
        nth_event(BlockFreed, 1, request_id=2),
        nth_event(BlockAllocated, request_id=4),
        nth_event(SlotsWritten, request_id=4),
    ],
    edition="mini-sglang+142",
    num_blocks=9,
)
