"""The prefix tree alone: a rollback restores all of it, wherever it strikes, and the heap finds the oldest leaf."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from labengine.config import SamplingParams
from labengine.core.block_pool import FreedTwiceError
from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request
from labengine.record.hooks import Hooks

NUM_BLOCKS = 24


class Raised(Exception):
    """Of a part, in the middle of a change."""


class FragilePool(RadixBlockPool):
    """Raises at a call of a method that the tree uses."""

    calls_left: int = -1

    def _count(self) -> None:
        self.calls_left -= 1
        if not self.calls_left:
            raise Raised

    def share(self, block: Any) -> None:
        self._count()
        super().share(block)

    def reclaim(self, block_ids: Any, reason: Any) -> Any:
        end = super().reclaim(block_ids, reason)
        self._count()
        return end

    def evict(self, block: Any, reason: Any = "reused") -> None:
        self._count()
        super().evict(block, reason)


def facts(node: Node) -> Any:
    """A node's fields; other nodes by their ids."""
    parent = None if node.parent is None else node.parent.node_id
    children = {key: child.node_id for key, child in node.children.items()}
    own = node.node_id, node.extra_keys, node.first_index, node.num_locks, node.touched
    return own, list(node.block_ids), list(node.links), parent, children


class Bench:
    """A pool with a tree, and requests on it: their blocks are their own until they are inserted."""

    def __init__(self, seed: int) -> None:
        self.rng, self.journal, self.hooks = Random(seed), Journal(), Hooks(strict=True)
        self.pool = FragilePool(NUM_BLOCKS, FreeQueue(NUM_BLOCKS), self.hooks, self.journal)
        self.tree = self.pool.tree = PrefixTree(self.pool, self.hooks, self.journal)
        self.hooks.subscribe(lambda event: self.pool._count())
        self.requests: dict[int, Request] = {}

    def state(self) -> Any:
        """All that a rollback has to restore, and what the tree answers."""
        tree, pool = self.tree, self.pool
        return (
            [facts(node) for _, node in sorted({0: tree.root, **tree.nodes}.items())],
            {block_id: node.node_id for block_id, node in tree.node_of.items()},
            {request_id: node.node_id for request_id, node in tree.holds.items()},
            (tree.num_evictable, tree._num_created, tree._num_touches),
            [(block.ref_count, block.keys) for block in pool.blocks],
            list(pool.free_queue),
        )

    def assert_whole(self) -> None:
        """The counts add up, and the next leaf is the oldest without locks and children."""
        tree = self.tree
        assert tree.num_evictable == sum(len(n.block_ids) for n in tree.nodes.values() if not n.num_locks)
        assert sorted(tree.node_of) == sorted(i for n in tree.nodes.values() for i in n.block_ids)
        leaves = [n for n in tree.nodes.values() if not n.children and not n.num_locks]
        assert tree.next_leaf() is min(leaves, key=lambda node: node.age, default=None)

    def act(self) -> None:
        """One random change, as the core makes them."""
        rng, tree = self.rng, self.tree
        request = self.requests.get(rng.randrange(4)) or self._new_request()
        match rng.randrange(6):
            case 0:
                tree.lock(
                    tree.match(request, rng.randint(0, 8)), request
                ) if request.request_id not in tree.holds else None
            case 1:
                tree.unlock(request)
            case 2 if self.pool.num_free:
                self.pool.release(self.pool.take(rng.randint(1, self.pool.num_free)))
            case 3 if tree.node_of:
                tree.forget(rng.choice(sorted(tree.node_of)), "distrusted")
            case _:
                self._insert(request)

    def _insert(self, request: Request) -> None:
        if self.pool.num_free >= (length := self.rng.randint(1, 8)):
            block_ids = self.pool.take(length)
            self.tree.insert(request, block_ids)
            self.pool.release(block_ids)

    def _new_request(self) -> Request:
        request = Request(
            self.rng.randrange(4), [0], SamplingParams(), 0, 1, (("salt", "a"),) * (self.rng.random() < 0.1)
        )
        request.links = [(self.rng.randrange(2),) for _ in range(8)]
        self.requests = {**self.requests, request.request_id: request}
        self.tree.unlock(request)
        return request


@pytest.mark.parametrize("seed", range(6))
def test_a_rollback_restores_the_tree_wherever_it_strikes(seed: int) -> None:
    bench, num_raised = Bench(seed), 0
    for _ in range(150):
        bench.journal.open()
        before, requests = bench.state(), bench.requests
        is_kept, bench.pool.calls_left = bench.rng.random() < 0.6, bench.rng.randint(1, 12)
        try:
            for _ in range(bench.rng.randint(1, 4)):
                bench.act()
        except Raised:
            is_kept, num_raised = False, num_raised + 1
        bench.pool.calls_left = -1
        if not is_kept:
            bench.journal.rollback()
            bench.requests = requests
            assert not bench.journal.failures and bench.state() == before
        bench.assert_whole()
    assert num_raised > 20 and bench.tree._num_created > 20


def test_a_leaf_that_keeps_blocks_is_shortened_where_it_is() -> None:
    bench = Bench(0)
    tree, block_ids, request = bench.tree, bench.pool.take(8), bench._new_request()
    tree.insert(request, block_ids)
    bench.pool.release(block_ids)
    (leaf,) = tree.nodes.values()
    own, before = leaf.block_ids, bench.state()
    bench.journal.open()
    tree.evict(3)
    assert tree.nodes == {leaf.node_id: leaf} and tree.find(request, 8).num_blocks == 5
    assert leaf.block_ids is own and own == block_ids[:5] == [*tree.node_of], "what stays is not copied"
    tree.forget(block_ids[2], "distrusted")
    assert leaf.block_ids is own and own == block_ids[:2]
    bench.assert_whole()
    bench.journal.rollback()
    assert bench.state() == before
    with pytest.raises(ValueError, match="it cannot keep 8"):
        tree.remove(leaf, "reused", 8)
    assert bench.state() == before


def test_a_block_that_is_free_already_is_not_given_back_twice() -> None:
    bench = Bench(0)
    bench._insert(bench._new_request())
    (leaf,) = [node for node in bench.tree.nodes.values() if not node.children]
    bench.pool.release(leaf.block_ids[-1:])
    before = list(bench.pool.free_queue)
    with pytest.raises(FreedTwiceError):
        bench.tree.remove(leaf, "reused")
    assert list(bench.pool.free_queue) == before
