"""Time per touched node of the prefix tree's operations, in small and in large trees.

    python benchmarks/growth.py [--nodes 1000 10000 100000 300000] [--rounds 5]

A path has three nodes, the last of which has two blocks. Each figure is processor time, with the journal and without
listeners: the quickest of the rounds. The last row is the growth per tenfold number of nodes, between the first row and
the last.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator
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
"""Per round: few enough that a round hardly changes the tree's size."""
FANOUT = 30
"""Children of the nodes in the middle."""
OPERATIONS = {"match": 3, "insert": 3, "split": 4, "evict": 1}
"""The nodes that one operation touches. An insertion passes two, a split passes two and leaves two halves."""


class Bench:
    """A tree of about num_nodes nodes."""

    def __init__(self, num_nodes: int) -> None:
        self.rng, self.journal = Random(0), Journal()
        num_blocks = 2 * num_nodes + 20 * NUM_OPERATIONS * 4
        self.pool = RadixBlockPool(num_blocks, FreeQueue(num_blocks), Hooks(), self.journal)
        self.tree = self.pool.tree = PrefixTree(self.pool, Hooks(), self.journal)
        self.num_new = 0
        number = count()
        while len(self.tree.nodes) < num_nodes:
            self.num_paths = next(number)
            self.insert(self.path(self.num_paths))
        self.num_paths += 1

    def path(self, number: int) -> Request:
        """Return a request along a path; FANOUT ones in succession share two nodes, FANOUT times as many share one."""
        request = Request(0, [0], SamplingParams(), 0, 1)
        request.links = [(number // FANOUT**2,), (number // FANOUT % FANOUT,), (number % FANOUT,), (0,)]
        return request

    def insert(self, request: Request) -> None:
        """Insert the blocks of a request, as prompts of growing length would; it ends, and only the tree keeps them."""
        for length in (1, 2, 4):
            if self.tree.match(request, length).end < length:
                block_ids = self.pool.take(length)
                self.tree.insert(request, block_ids)
                self.pool.release(block_ids)
        self.journal.clear()

    def leaves(self) -> Iterator[Request]:
        """Yield requests along random paths that the tree has."""
        while True:
            request = self.path(self.rng.randrange(self.num_paths))
            if self.tree.match(request, 4).end == 4:
                yield request

    def seconds(self, operation: str) -> float:
        """Return the processor time of one operation per touched node, over a round of random ones."""
        paths = self.leaves()
        requests = [next(paths) for _ in range(NUM_OPERATIONS)]
        for number, request in enumerate(requests):
            if operation == "insert":
                self.num_new += 1
                request.links[2] = (-self.num_new,)
            elif operation == "split":
                request.links[3] = (number + 1,)
        blocks = [self.pool.take(4) if operation == "insert" else [] for _ in requests]
        actions = {"match": self._match, "insert": self._insert, "split": self._match, "evict": self._evict}
        spent = timed(actions[operation], requests, blocks)
        for block_ids in filter(None, blocks):
            self.pool.release(block_ids)
        self.journal.clear()
        return spent / NUM_OPERATIONS / OPERATIONS[operation]

    def _match(self, request: Request, block_ids: list[int]) -> None:
        self.tree.match(request, 4)
        self.journal.clear()

    def _insert(self, request: Request, block_ids: list[int]) -> None:
        self.tree.insert(request, block_ids)
        self.journal.clear()

    def _evict(self, request: Request, block_ids: list[int]) -> None:
        self.tree.evict(1)
        self.journal.clear()


def timed(action: Callable[[Request, list[int]], None], requests: list[Request], blocks: list[list[int]]) -> float:
    """Return the processor time of all these actions, without the garbage collector's."""
    gc.collect()
    gc.disable()
    started = process_time()
    for request, block_ids in zip(requests, blocks, strict=True):
        action(request, block_ids)
    spent = process_time() - started
    gc.enable()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=5)
    selected = parser.parse_args()
    print("| nodes | " + " | ".join(f"{name}, us" for name in OPERATIONS) + " |")
    print("|---:|" + "---:|" * len(OPERATIONS))
    rows: list[list[float]] = []
    for num_nodes in selected.nodes:
        bench = Bench(num_nodes)
        rounds = [[bench.seconds(name) * 1e6 for name in OPERATIONS] for _ in range(selected.rounds)]
        rows.append([min(column) for column in zip(*rounds, strict=True)])
        print(f"| {len(bench.tree.nodes):,} | " + " | ".join(f"{one:.2f}" for one in rows[-1]) + " |", flush=True)
    decades = log10(selected.nodes[-1] / selected.nodes[0])
    growth = [(last / first) ** (1 / decades) for first, last in zip(rows[0], rows[-1], strict=True)]
    print("| growth | " + " | ".join(f"{one:.2f}" for one in growth) + " |")


if __name__ == "__main__":
    main()
