"""Broken copies of vLLM: its own classes with one method changed, as a patch would. Runs where vLLM is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from vllm.v1.core import kv_cache_utils
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

get_new_blocks, free_blocks, cache_full_blocks = (
    BlockPool.get_new_blocks,
    BlockPool.free_blocks,
    BlockPool.cache_full_blocks,
)
schedule = Scheduler.schedule


def reversed_free_order(self: BlockPool, ordered_blocks: Iterable[Any]) -> None:
    """The head of a table is reused first, and then the tail that is useless without it."""
    free_blocks(self, reversed(list(ordered_blocks)))


def touch_without_dequeuing(self: BlockPool, blocks: Sequence[Any]) -> None:
    """A hit block stays in the free queue, and is given away while it is read."""
    for block in blocks:
        block.ref_cnt += 1


def new_blocks_unasserted(self: BlockPool, num_blocks: int) -> list[Any]:
    """As under python -O: nothing notices that a block is in use."""
    found = self.free_block_queue.popleft_n(num_blocks)
    for block in found:
        self._maybe_evict_cached_block(block)
        block.ref_cnt += 1
    return found


def all_to_the_tail(self: BlockPool, ordered_blocks: Iterable[Any]) -> None:
    """Blocks without content wait at the tail, and cached ones are evicted before them."""
    freed = []
    for block in ordered_blocks:
        block.ref_cnt -= 1
        if not block.ref_cnt and not block.is_null:
            freed.append(block)
    self.free_block_queue.append_n(freed)


def merging_late(self: BlockPool, request: Any, blocks: list[Any], *args: Any, **kwargs: Any) -> None:
    """A full block whose hash is cached already is given back, and its table entry points at the cached one."""
    group, size, num_full = (kwargs[name] for name in ("kv_cache_group_id", "block_size", "num_full_blocks"))
    ratio = size // self.hash_block_size
    for index in range(kwargs["num_cached_blocks"], num_full if ratio == 1 else 0):
        cached = self.get_cached_block(request.block_hashes[index], [group])
        if cached and cached[0] is not blocks[index] and not blocks[index].is_null:
            self.touch([cached[0]])
            copy, blocks[index] = blocks[index], cached[0]
            self.free_blocks([copy])
    cache_full_blocks(self, request, blocks, *args, **kwargs)


def freeing_too_early(self: Scheduler, *args: Any) -> Any:
    """After the third step the first block of the first running request is given back, which goes on."""
    output = schedule(self, *args)
    if self.current_step == 3 and self.running:
        blocks = self.kv_cache_manager.get_blocks(self.running[0].request_id).blocks
        self.kv_cache_manager.block_pool.free_blocks([blocks[0][0]])
    return output


def without_salt(request: Request, start: int, end: int, start_mm_idx: int) -> tuple[None, int]:
    """Tenants with other salts share blocks."""
    return None, start_mm_idx


def youngest_first(self: FCFSRequestQueue, request: Request) -> None:
    """New requests overtake those that wait."""
    self.appendleft(request)


Change = tuple[Any, str, Callable[..., Any]]

BROKEN: Mapping[str, Sequence[Change]] = {
    "free order reversed": [(BlockPool, "free_blocks", reversed_free_order)],
    "touch leaves the queue": [
        (BlockPool, "touch", touch_without_dequeuing),
        (BlockPool, "get_new_blocks", new_blocks_unasserted),
    ],
    "unhashed to the tail": [(BlockPool, "free_blocks", all_to_the_tail)],
    "late merge": [(BlockPool, "cache_full_blocks", merging_late)],
    "freed too early": [(Scheduler, "schedule", freeing_too_early)],
    "salt left out": [(kv_cache_utils, "generate_block_hash_extra_keys", without_salt)],
    "youngest first": [(FCFSRequestQueue, "add_request", youngest_first)],
}
"""Each broken copy's changed methods."""


@contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Run the block with one broken copy in vLLM's place; None for vLLM as it is."""
    with ExitStack() as patches:
        for owner, method, changed in BROKEN[name] if name else ():
            patches.enter_context(patch.object(owner, method, changed))
        yield
