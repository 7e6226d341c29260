"""Time per touched node of the prefix tree's operations, in small and in large trees.

    python benchmarks/growth.py [--nodes 1000 300000] [--rounds 8] [--one-tree]

A path has three nodes, the last of which has two blocks. Each figure is processor time, with the journal and without
listeners: the quickest of the rounds. The last row is the growth per tenfold number of nodes, between the first row and
the last. Each row has as many trees as have together the nodes of the largest one, so that the processor's caches hold
none of them; with --one-tree, small trees have the benefit of them.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from itertools import count
from math import log10
from pathlib import Path
from random import Random
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from labengine.config import SamplingParams
from labengine.core.free_queue import FreeQueue
from labengine.core.journal import Journal
from labengine.core.radix.block_pool import RadixBlockPool
from labengine.core.radix.prefix_tree import PrefixTree
from labengine.core.request import Request
from labengine.record.hooks import Hooks

NUM_OPERATIONS = 300
"""Per round: few enough that a round hardly changes the trees."""
FANOUT = 30
"""Children of a node in the middle of a path, and of the one above it."""
TOUCHED = {"match": 3, "insert": 3, "split": 4, "evict": 1}
"""Nodes that an operation touches. An insertion passes two and adds one; a split passes two and leaves two halves."""


class Bench:
    """A tree of about num_nodes nodes."""

    def __init__(self, num_nodes: int) -> None:
        num_blocks = 2 * num_nodes + 100 + 8 * NUM_OPERATIONS
        self.journal = Journal()
        self.pool = RadixBlockPool(num_blocks, FreeQueue(num_blocks), Hooks(), self.journal)
        self.tree = self.pool.tree = PrefixTree(self.pool, Hooks(), self.journal)
        numbers = count()
        while len(self.tree.nodes) < num_nodes:
            self.num_paths = next(numbers) + 1
            self._insert_path(self.num_paths - 1)

    def path(self, number: int) -> Request:
        """Return a request along a path; FANOUT ones in succession share two nodes, FANOUT times as many share one."""
        request = Request(0, [0], SamplingParams(), 0, 1)
        request.links = [(number // FANOUT**2,), (number // FANOUT % FANOUT,), (number % FANOUT,), (0,)]
        return request

    def _insert_path(self, number: int) -> None:
        request = self.path(number)
        lengths = (1, 2, 4) if number % FANOUT**2 == 0 else (2, 4) if number % FANOUT == 0 else (4,)
        for length in lengths:
            self.insert(request, self.pool.take(length))

    def insert(self, request: Request, block_ids: list[int]) -> None:
        """Insert blocks of a request that ends: only the tree keeps them."""
        self.tree.insert(request, block_ids)
        self.pool.release(block_ids)
        self.journal.clear()

    def prepared(self, operation: str, rng: Random, number: int) -> Callable[[], None]:
        """Return an operation on a random path, ready to be timed; an insertion or a split makes a new end for it."""
        request = self.path(rng.randrange(self.num_paths))
        while self.tree.find(request, 4).num_blocks < 4:
            request = self.path(rng.randrange(self.num_paths))
        if operation == "evict":
            return lambda: self._evict()
        if operation == "insert":
            request.links[2] = (-number,)
            block_ids = self.pool.take(4)
            return lambda: self.insert(request, block_ids)
        if operation == "split":
            request.links[3] = (number,)
        return lambda: self._match(request)

    def _match(self, request: Request) -> None:
        self.tree.match(request, 4)
        self.journal.clear()

    def _evict(self) -> None:
        self.tree.evict(2)
        self.journal.clear()


def seconds(benches: list[Bench], operation: str, rng: Random, numbers: count[int]) -> float:
    """Return the processor time of an operation per touched node, over a round of random ones in all trees."""
    actions = [rng.choice(benches).prepared(operation, rng, next(numbers)) for _ in range(NUM_OPERATIONS)]
    gc.collect()
    gc.disable()
    started = process_time()
    for action in actions:
        action()
    spent = process_time() - started
    gc.enable()
    return spent / NUM_OPERATIONS / TOUCHED[operation]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 300_000])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--one-tree", action="store_true", help="small trees may stay in the processor's caches")
    selected = parser.parse_args()
    print("| nodes | " + " | ".join(f"{name}, us" for name in TOUCHED) + " |")
    print("|---:|" + "---:|" * len(TOUCHED))
    rows: list[list[float]] = []
    for num_nodes in selected.nodes:
        num_trees = 1 if selected.one_tree else max(1, selected.nodes[-1] // num_nodes)
        benches, rng, numbers = [Bench(num_nodes) for _ in range(num_trees)], Random(0), count(1)
        gc.freeze()
        rounds = [[seconds(benches, name, rng, numbers) * 1e6 for name in TOUCHED] for _ in range(selected.rounds)]
        rows.append([min(column) for column in zip(*rounds, strict=True)])
        print(f"| {num_nodes:,} | " + " | ".join(f"{one:.2f}" for one in rows[-1]) + " |", flush=True)
        gc.unfreeze()
    decades = log10(selected.nodes[-1] / selected.nodes[0])
    growth = [(last / first) ** (1 / decades) for first, last in zip(rows[0], rows[-1], strict=True)]
    print("| growth | " + " | ".join(f"{one:.2f}" for one in growth) + " |")


if __name__ == "__main__":
    main()
