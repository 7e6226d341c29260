"""Prefix trees that are decided wrongly: the rule, the event and the method are named, or the answer is refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from check.watched import Watched, watched
from driving import difference
from labengine import events as ev
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request
from labengine.events import FreeReason

EDITION = edition_named("mini-sglang+142")


class NeverUnlocks(PrefixTree):
    """Keeps each lock for ever."""

    def unlock(self, request: Request) -> None:
        pass


class LocksOneNode(PrefixTree):
    """Locks a node, but none above it."""

    def lock(self, node: Node, request: Request) -> None:
        super().lock(node, request)
        for above in node.path()[:-1]:
            above.num_locks -= 1


class LocksSilently(PrefixTree):
    """Locks a node that no event names."""

    def lock(self, node: Node, request: Request) -> None:
        self.holds[request.request_id] = node
        for above in node.path():
            above.num_locks += 1


class HangsOneTooHigh(PrefixTree):
    """Adds a leaf to the node above the one whose blocks it continues."""

    def add_leaf(self, parent: Node, request: Request, block_ids: Sequence[int]) -> Node:
        leaf = super().add_leaf(parent, request, block_ids)
        if parent.parent is not None:
            leaf.parent = parent.parent
        return leaf


class AddsBlocksTwice(PrefixTree):
    """Adds a block that the tree has already."""

    def add_leaf(self, parent: Node, request: Request, block_ids: Sequence[int]) -> Node:
        own = next((other.block_ids[0] for other in self.nodes.values()), block_ids[-1])
        return super().add_leaf(parent, request, [*block_ids[:-1], own])


class ForgetsTheUpperHalf(PrefixTree):
    """Splits a node, and leads from the root past its upper half."""

    def split(self, node: Node, num_blocks: int) -> Node:
        upper = super().split(node, num_blocks)
        upper.children.clear()
        return upper


class LeavesLocks(RadixGroup):
    """Frees a request's blocks, and keeps its lock."""

    def free(self, request: Request, reason: FreeReason) -> None:
        node = self.tree.holds.get(request.request_id)
        super().free(request, reason)
        if node is not None and reason == "finished":
            self.tree.lock(node, request)


def crowd(setup: Watched) -> None:
    """Prompts that share beginnings, more than the pool keeps: hits, splits, merges, evictions."""
    shared = tuple(range(1, 13))
    for tail in ((20, 21), (30, 31, 32, 33, 34), (), (20, 21)):
        for _ in range(2):
            setup.add(*shared[: 12 - len(tail)], *tail, 40, max_tokens=3)
        setup.run()
    for start in (100, 200, 300):
        setup.add(*range(start, start + 30), max_tokens=4)
        setup.run()


def found(part: type) -> Watched:
    """Play the crowd on a tree edition with this part, however it ends."""
    setup = watched(12, edition=Parts(part).overriding(EDITION))
    with suppress(Exception):
        crowd(setup)
    return setup


@pytest.mark.parametrize(
    ("part", "rule", "kind"),
    [
        (NeverUnlocks, "locks", ev.RequestFinished),
        (LeavesLocks, "locks", ev.RequestFinished),
        (LocksOneNode, "locks", ev.NodeUnlocked),
        (LocksSilently, "said", ev.PrefixHit),
        (HangsOneTooHigh, "tree", ev.NodeInserted),
        (AddsBlocksTwice, "tree", ev.NodeInserted),
        (ForgetsTheUpperHalf, "tree", ev.NodeSplit),
    ],
)
def test_a_wrong_tree_is_reported_with_rule_event_class_and_method(part: type, rule: str, kind: type[ev.Event]) -> None:
    setup = found(part)
    assert rule in setup.broken_rules(), setup.watch.violations
    violation = next(one for one in setup.watch.violations if one.rule == rule)
    (method,) = (name for name in vars(part) if not name.startswith("_"))
    assert f"{part.__name__}.{method}" in violation.message
    assert isinstance(setup.first_event(rule), kind), (setup.first_event(rule), violation)


def test_a_right_tree_breaks_no_rule() -> None:
    class Same(PrefixTree):
        pass

    setup = found(Same)
    setup.assert_clean()
    assert {ev.NodeSplit, ev.NodeEvicted, ev.NodeLocked} <= {type(event) for event in setup.timeline.events()}


ANSWERS: dict[str, list[Any]] = {
    "find": [None, 3, ([], 2), ([Node(99, None, (), 0, [0], [(1,)])], 1)],
    "match": [None, 3, Node(99, None, (), 0, [0], [(1,)]), "the deepest"],
    "child_of": ["the node itself", Node(99, None, (), 0, [0], [(1,)])],
    "num_equal": [0, -1, 99, True, None],
    "split": [None, "the lower half"],
    "insert": [None, (None, 0), ("root", 2)],
    "add_leaf": [None, "the parent"],
    "held_by": [None, Node(99, None, (), 0, [0], [(1,)])],
    "next_leaf": ["locked", Node(99, None, (), 0, [0], [(1,)]), 7],
}


@pytest.mark.parametrize(("method", "answer"), [(name, answer) for name, all_ in ANSWERS.items() for answer in all_])
def test_a_useless_answer_is_refused_by_class_and_method_and_changes_nothing(method: str, answer: Any) -> None:
    def decide(self: PrefixTree, *arguments: Any) -> Any:
        right = getattr(super(wrong, self), method)(*arguments)
        locked = next((node for node in self.nodes.values() if node.num_locks), right)
        named = {
            "the deepest": max(self.nodes.values(), key=lambda node: node.end, default=None),
            "the node itself": arguments[0] if arguments else None,
            "the lower half": arguments[0] if arguments else None,
            "the parent": arguments[0] if arguments else None,
            "locked": locked,
        }
        given = named[answer] if isinstance(answer, str) else answer
        return (self.root, 2) if given == ("root", 2) else given

    wrong = type("Wrong", (PrefixTree,), {method: decide})
    setup, said = watched(12, edition=Parts(wrong).overriding(EDITION)), ""
    for _ in range(3):
        before = setup.engine.snapshot()
        try:
            crowd(setup)
        except ValueError as error:
            said = said or str(error)
    assert said.startswith(f"Wrong.{method} must return"), said
    assert setup.watch.violations == []
    assert before is not None and difference(setup.timeline.state().snapshot(), setup.engine.snapshot()) is None
