"""Observers of cached content: hashes that a block gets and loses."""

from __future__ import annotations

from typing import Any

from labengine_vllm.engine import Engine
from labengine_vllm.kinds import BLOCK_CACHED, BLOCK_EVICTED, HASHES_MOVED, PREFIX_CACHE_RESET
from labengine_vllm.recorder import Recorder
from labengine_vllm.requests import report_sampled
from labengine_vllm.wrapping import Wrapping


def group_of(key: bytes) -> int:
    """Return the group of a key of vLLM's prefix map: a block hash, then the group in four bytes."""
    return int.from_bytes(key[-4:], "big")


def hash_of(key: bytes) -> str:
    """Return the block hash of a key of vLLM's prefix map, in hex."""
    return key[:-4].hex()


def mapped_ids(entry: Any) -> tuple[int, ...]:
    """Return the ids of the blocks that an entry of vLLM's prefix map holds: one block, or a dict of them by id."""
    return tuple(entry) if isinstance(entry, dict) else (entry.block_id,)


class ContentObserver:
    """Observes the hashes of one pool's blocks."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._pool, self._groups, self._recorder = engine.pool, engine.groups, recorder
        self._request_id = ""

    def watch(self, wrapping: Wrapping) -> None:
        """Put the wrappers on the pool."""
        pool = self._pool
        for name in ("cache_full_blocks", "cache_partial_block"):
            wrapping.watch(pool, name, self._before_caching, self._after_caching)
        wrapping.watch(pool, "move_block_hashes", self._before_move, self._after_move)
        wrapping.watch(pool, "_insert_block_hash", self._before_insert, self._after_insert)
        wrapping.watch(pool, "_remove_cached_block_hashes", self._before_remove)
        wrapping.watch(pool, "evict_blocks", self._before_evict, self._after_caching)
        wrapping.watch(pool, "reset_prefix_cache", self._before_reset, self._after_reset)

    def _before_caching(self, request: Any, *_: Any, **__: Any) -> None:
        recorder = self._recorder
        report_sampled(recorder, request)  # a block is cached for tokens that the request already has
        recorder.caching, recorder.evict_reason = recorder.id_of(request.request_id), "replaced"
        self._request_id = request.request_id

    def _after_caching(self, *_: Any, **__: Any) -> None:
        self._recorder.caching, self._recorder.evict_reason = None, "reused"

    def _before_insert(self, block_hash_with_group_id: bytes, block: Any, num_tokens: int | None) -> bool:
        """Return whether the block does not have this hash yet."""
        served = self._pool.cached_block_hash_to_block
        is_known = block.block_hash == block_hash_with_group_id
        return not (is_known or served.contain(block_hash_with_group_id, block.block_id))

    def _after_insert(
        self, is_new: bool, result: None, block_hash_with_group_id: bytes, block: Any, num_tokens: int | None
    ) -> None:
        recorder, key = self._recorder, block_hash_with_group_id
        if not is_new or recorder.is_moving:
            return
        if recorder.caching is None or num_tokens is None:
            return recorder.lose("a hash moved to another block", "BlockPool._insert_block_hash")
        group, mapped = group_of(key), mapped_ids(self._pool.cached_block_hash_to_block._cache[key])
        index, is_full = self._place(group, block, num_tokens)
        place = (recorder.caching, group, index)
        recorder.rows.append((BLOCK_CACHED, block.block_id, *place, hash_of(key), mapped, is_full))

    def _place(self, group: int, block: Any, num_tokens: int) -> tuple[int, bool]:
        """Return a block's entry in the table, and whether num_tokens end with it.

        A state inside a chunk is in a later entry than its last token.
        """
        size, table = self._groups[group].block_size, self._groups[group].req_to_blocks.get(self._request_id, ())
        index = (num_tokens - 1) // size
        if index >= len(table) or table[index] is not block:
            index = next((at for at, one in enumerate(table) if one is block), index)
        return index, num_tokens == (index + 1) * size

    def _before_move(self, src_block: Any, dst_block: Any) -> None:
        self._recorder.is_moving = True

    def _after_move(self, found: None, result: None, src_block: Any, dst_block: Any) -> None:
        self._recorder.is_moving = False
        if dst_block.block_hash is not None:
            self._recorder.rows.append((HASHES_MOVED, src_block.block_id, dst_block.block_id))

    def _before_remove(self, block: Any) -> None:
        is_cached = block.block_hash is not None or block.block_id in self._pool.cached_block_hashes_by_block
        if is_cached and not self._recorder.is_moving:
            self._recorder.rows.append((BLOCK_EVICTED, block.block_id, self._recorder.evict_reason))

    def _before_evict(self, *_: Any, **__: Any) -> None:
        self._recorder.evict_reason = "distrusted"

    def _before_reset(self) -> list[int]:
        self._recorder.note("reset")
        return [block.block_id for block in self._pool.blocks if block.block_hash is not None]

    def _after_reset(self, cached: list[int], is_done: bool) -> None:
        if is_done:
            self._recorder.rows.extend((BLOCK_EVICTED, block_id, "reset") for block_id in cached)
            self._recorder.rows.append((PREFIX_CACHE_RESET,))
