"""Scenarios about mini-sglang, run on mini-sglang's own scheduler, cache manager and radix cache, without its model.

LABENGINE_MINI_SGLANG names the clone. The finder's driver imports it, with what stands in for the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from differential.finder_driver import driver

COMMIT = "20fcd7f"
Rows = dict[str, dict[str, int]]

driving = driver("mini_sglang_scheduler")


class Run:
    """One run. requests: per step, (uid, prompt, tokens to sample) each; aborts: per step, uids."""

    def __init__(
        self,
        num_pages: int,
        requests: Mapping[int, Sequence[tuple[int, Sequence[int], Sequence[int]]]],
        aborts: Mapping[int, Sequence[int]] = {},
        *,
        is_overlapped: bool = False,
        page_size: int = 1,
    ) -> None:
        self._requests, self._aborts, self._is_overlapped = requests, aborts, is_overlapped
        self._page_size = page_size
        self._outputs = {uid: iter(output) for step in requests.values() for uid, _, output in step}
        self.misread: set[int] = set()
        self.found: dict[int, int] = {}
        """Tokens that each request found at its admission, by uid."""
        self.step = 0
        self._in_flight: Any = None
        self._kv: dict[int, tuple[int, ...]] = {}
        """Per slot, the tokens up to and with the one whose KV it holds."""
        self.scheduler: Any = driving.OrderedScheduler(
            SimpleNamespace(
                page_size=page_size,
                num_pages=num_pages,
                max_running_req=8,
                max_extend_tokens=64,
                cache_type="radix",
                model_path="",
                offline_mode=True,
                tp_info=SimpleNamespace(is_primary=lambda: True, size=1, rank=0),
                next_token=lambda request: next(self._outputs[request.uid]),
                on_batch=self._compute,
            )
        )
        self.scheduler.receive_msg = self._messages
        self.scheduler.eos_token_id = 99

    def _compute(self, batch: Any) -> None:
        """Write the batch's slots, then read."""
        reads = []
        for request in batch.reqs:
            self.found.setdefault(request.uid, request.cached_len)
            tokens = self.scheduler.token_pool[request.table_idx, : request.device_len].tolist()
            slots = self.scheduler.engine.page_table[request.table_idx, : request.device_len].tolist()
            for position in range(request.cached_len, request.device_len):
                self._kv[slots[position]] = tuple(tokens[: position + 1])
            reads.append((request.uid, [(slot, tuple(tokens[: p + 1])) for p, slot in enumerate(slots)]))
        self.misread |= {uid for uid, read in reads for slot, content in read if self._kv.get(slot) != content}

    def _messages(self, blocking: bool) -> list[Any]:
        message, core = (importlib.import_module(f"minisgl.{name}") for name in ("message", "core"))
        added = [
            message.UserMsg(
                uid=uid,
                input_ids=torch.tensor(list(prompt), dtype=torch.int32),
                sampling_params=core.SamplingParams(max_tokens=len(output)),
            )
            for uid, prompt, output in self._requests.get(self.step, ())
        ]
        return [*added, *(message.AbortBackendMsg(uid=uid) for uid in self._aborts.get(self.step, ()))]

    def play(self, num_steps: int) -> None:
        """Take so many steps more."""
        for _ in range(num_steps):
            if self._is_overlapped:
                self._in_flight = self.scheduler.overlap_loop(self._in_flight)
            else:
                self.scheduler.normal_loop()
            self.step += 1

    def pages_of(self, request: Any) -> set[int]:
        """First slot of each page in a request's row of the page table."""
        row = self.scheduler.engine.page_table[request.table_idx, : request.cached_len].tolist()
        return {slot - slot % self._page_size for slot in row}

    @property
    def free_pages(self) -> list[int]:
        """First slot of each free page."""
        return [int(page) for page in self.scheduler.cache_manager.free_slots]

    @property
    def tree_pages(self) -> set[int]:
        """Pages that the radix tree holds."""
        found, nodes = set(), [self.scheduler.cache_manager.prefix_cache.root_node]
        while nodes:
            children = list(nodes.pop().children.values())
            found |= {page for node in children for page in node._value.tolist()}
            nodes += children
        return found


def no_remap() -> Rows:
    """Pull request 142: A and B are equal and computed in one step, and A ends; C takes pages that B's row names."""
    equal = [(uid, range(1, 10), output) for uid, output in ((0, [5]), (1, [6, 7, 8, 9]))]
    run = Run(8, {0: equal, 1: [(2, range(101, 114), [3])]}, page_size=4)
    run.play(1)
    named = {page for request in run.scheduler.decode_manager.running_reqs for page in run.pages_of(request)}
    num_named = len(named.intersection(run.free_pages))
    run.play(2)
    return {COMMIT: {"free pages in a table": num_named, "requests that misread": len(run.misread)}}


def aborted_and_finished() -> Rows:
    """Pull request 111: the abort comes while the request's last step is in flight, and while its prompt's is."""
    ends = Run(16, {0: [(0, [1, 2, 3], [5, 99, 5, 5, 5, 5])]}, {2: [0]}, is_overlapped=True)
    num_failed = 0
    try:
        ends.play(4)
    except AssertionError:
        num_failed = 1
    begins = Run(16, {0: [(0, [1, 2, 3, 4], [5, 6, 7, 8, 9, 9])]}, {1: [0]}, is_overlapped=True)
    begins.play(3)
    return {
        f"{COMMIT}, last step in flight": {"steps ended by an assertion": num_failed},
        f"{COMMIT}, prompt in flight": {
            "pages both free and in the tree": len({*begins.free_pages} & begins.tree_pages)
        },
    }


def whole_pages() -> Rows:
    """Commit 5e52ef3: prompts of 5 tokens, and 3 pages of 4; one alone, and then two at once."""
    one, two, three = ((uid, range(10 * uid + 1, 10 * uid + 6), [7]) for uid in range(3))
    run = Run(3, {0: [one], 1: [two, three]}, page_size=4)
    run.play(1)
    num_failed = 0
    try:
        run.play(1)
    except AssertionError:
        num_failed = 1
    return {COMMIT: {"steps ended by an error": num_failed}}


def lock_walk() -> Rows:
    """Pull request 52: B reads A's prefix while C, which needs more than the free pages, is admitted or waits."""
    cache = importlib.import_module("minisgl.kvcache.radix_cache")
    lock_handle, rows = cache.RadixPrefixCache.lock_handle, {}

    def from_the_parent(self: Any, handle: Any, unlock: bool = False) -> None:
        node = handle.node if handle.node.is_root() else handle.node.parent
        lock_handle(self, cache.RadixCacheHandle(handle.cached_len, node), unlock)

    for name, method in (("one node off", from_the_parent), ("whole path", lock_handle)):
        cache.RadixPrefixCache.lock_handle = method
        prompts = ((0, range(1, 10), [5]), (1, [*range(1, 9), 10], [6, 7, 8]), (2, range(101, 114), [9]))
        run = Run(6, {step: [prompt] for step, prompt in enumerate(prompts)}, page_size=4)
        run.play(4)
        rows[name] = {"requests that misread": len(run.misread)}
    cache.RadixPrefixCache.lock_handle = lock_handle
    return rows


def stale_half() -> Rows:
    """Pull request 124: A, Z, B, D and E, one after the other. B's prompt is A's beginning, and E begins with it."""
    cache = importlib.import_module("minisgl.kvcache.radix_cache")
    split_at, rows = cache.RadixTreeNode.split_at, {}

    def split_and_refresh(self: Any, position: int) -> Any:
        node = split_at(self, position)
        node.timestamp = cache.time.monotonic_ns()
        return node

    for name, method in ((COMMIT, split_at), ("split half touched", split_and_refresh)):
        cache.RadixTreeNode.split_at = method
        prompts = (range(1, 14), range(21, 30), range(1, 9), range(41, 58), [*range(1, 9), 61])
        run = Run(8, {step: [(step, prompt, [7])] for step, prompt in enumerate(prompts)}, page_size=4)
        run.play(5)
        rows[name] = {"tokens found": run.found[4]}
    cache.RadixTreeNode.split_at = split_at
    return rows


RUNS = {
    "mini-sglang-111": aborted_and_finished,
    "mini-sglang-124": stale_half,
    "mini-sglang-142": no_remap,
    "mini-sglang-52": lock_walk,
    "mini-sglang-5e52ef3": whole_pages,
}
"""Per scenario, what gives its rows."""

PARTS = {
    "mini-sglang-124": "Scheduler and radix cache, in the second row with a split that refreshes the new node",
    "mini-sglang-52": "Scheduler and radix cache, in the first row with the walk of lock_handle in f074873",
}
"""The executed code, where it is not just the scheduler and the radix cache of the commit."""
