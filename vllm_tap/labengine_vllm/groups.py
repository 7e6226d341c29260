"""Observers of the block tables of one KV-cache group: blocks that join a request's table, and blocks that leave it.

In a table of states (Mamba, linear attention) a block holds one state, and most entries are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labengine_vllm.kinds import (
    BLOCK_ALLOCATED,
    BLOCK_COPIED,
    BLOCK_MOVED,
    BLOCK_PINNED,
    BLOCK_TOUCHED,
    BLOCKS_SKIPPED,
    FREE_DEFERRED,
)
from labengine_vllm.recorder import Owner, Recorder
from labengine_vllm.wrapping import Wrapping

_MANAGER = "SingleTypeKVCacheManager"


class GroupObserver:
    """Observes the block tables of one KV-cache group."""

    def __init__(self, recorder: Recorder, group: Any, number: int) -> None:
        self._recorder, self._group, self._number = recorder, group, number

    def watch(self, wrapping: Wrapping) -> None:
        """Wrap the group's methods."""
        group = self._group
        wrapping.watch(group, "add_local_computed_blocks", self._before_hit, self._after_hit)
        for name in ("allocate_new_blocks", "allocate_external_computed_blocks"):
            wrapping.watch(group, name, self._before_growth, self._after_growth)
        wrapping.watch(group, "_remove_blocks_in_range", self._before_window, self._after_freeing)
        wrapping.watch(group, "free", self._before_freeing, self._after_freeing)
        wrapping.watch(group, "pop_blocks_for_free", self._before_pop)
        wrapping.watch(group, "_apply_cow", None, self._after_copy)

    def _before_hit(self, *_: Any, **__: Any) -> None:
        self._recorder.is_touching = True

    def _after_hit(self, found: None, result: None, request_id: str, *_: Any, **__: Any) -> None:
        recorder, table = self._recorder, self._group.req_to_blocks[request_id]
        recorder.is_touching = False
        number, num_null = recorder.id_of(request_id), _num_leading_nulls(table)
        if num_null:
            recorder.rows.append((BLOCKS_SKIPPED, number, self._number, num_null))
        for index in range(num_null, len(table)):
            block = table[index]
            if block.is_null:
                return recorder.lose("a prefix hit has a hole", f"{_MANAGER}.add_local_computed_blocks")
            recorder.rows.append((BLOCK_TOUCHED, block.block_id, number, self._number, index, block.ref_cnt))

    def _before_growth(self, request_id: str, *_: Any, **__: Any) -> Any:
        return len(self._group.req_to_blocks.get(request_id, ()))

    def _after_growth(self, before: Any, result: Any, request_id: str, *_: Any, **__: Any) -> None:
        table = self._group.req_to_blocks.get(request_id, ())
        if len(table) == before:
            return
        recorder, number = self._recorder, self._recorder.id_of(request_id)
        for index in range(before, len(table)):
            if table[index].is_null:
                return recorder.lose("a table grew by an entry without a block", f"{_MANAGER}.allocate_new_blocks")
            recorder.rows.append((BLOCK_ALLOCATED, table[index].block_id, number, self._number, index))

    def _before_window(self, request_id: str, first_block: int, last_block: int) -> Owner | None:
        table, index_of = self._group.req_to_blocks.get(request_id, ()), {}
        for index in range(min(last_block, len(table)) - 1, first_block - 1, -1):
            if table[index].is_null:
                break
            index_of[table[index].block_id] = index
        return self._owns(request_id, index_of, "window")

    def _before_freeing(self, request_id: str) -> Owner | None:
        table = self._group.req_to_blocks.get(request_id, ())
        index_of = {block.block_id: index for index, block in enumerate(table)}
        return self._owns(request_id, index_of, self._recorder.free_reason)

    def _owns(self, request_id: str, index_of: dict[int, int], reason: str) -> Owner | None:
        """Note the owner of the blocks that are freed now; return the owner of those that the calling method frees."""
        outer = self._recorder.owner
        self._recorder.owner = Owner(self._recorder.id_of(request_id), self._number, index_of, reason)
        return outer

    def _after_freeing(self, outer: Owner | None, *_: Any, **__: Any) -> None:
        self._recorder.owner = outer

    def _before_pop(self, request_id: str) -> None:
        recorder = self._recorder
        if recorder.owner is not None:  # they are freed at once
            return
        ids = [block.block_id for block in self._group.req_to_blocks.get(request_id, ()) if not block.is_null]
        if ids:
            recorder.rows.append((FREE_DEFERRED, recorder.id_of(request_id), self._number, ids))
            recorder.pins.update(ids)

    def _after_copy(
        self, found: None, result: None, request_id: str, block_idx: int, source_block: Any, cow_block: Any
    ) -> None:
        recorder, pair = self._recorder, (source_block.block_id, cow_block.block_id)
        if cow_block.ref_cnt != 2:
            return recorder.lose("copy-on-write of a partially hit block")
        recorder.rows.append((BLOCK_COPIED, *pair, recorder.id_of(request_id), self._number, block_idx))
        recorder.pins.update(pair)


class StateObserver(GroupObserver):
    """Observes the block tables of one state group. Copies of states between blocks follow from the tables."""

    def watch(self, wrapping: Wrapping) -> None:
        """Wrap the group's methods."""
        super().watch(wrapping)
        wrapping.watch(self._group, "remove_skipped_blocks", self._before_skipped, self._after_freeing)

    def _before_growth(self, request_id: str, *_: Any, **__: Any) -> tuple[int, int, dict[int, int]]:
        """Return the length of a request's table, the number of copies to make, and the scratch blocks' entries."""
        length = super()._before_growth(request_id)
        table, num_scratch = self._group.req_to_blocks.get(request_id, ()), self._group.num_speculative_blocks
        scratch = range(max(0, length - num_scratch), length)
        entries = {table[index].block_id: index for index in scratch if not table[index].is_null}
        return length, len(self._group._pending_cow_copies), entries

    def _after_growth(self, before: Any, result: Any, request_id: str, *_: Any, **__: Any) -> None:
        recorder, number = self._recorder, self._recorder.id_of(request_id)
        table = self._group.req_to_blocks.get(request_id, ())
        (length, num_copies, scratch), num_null = before, 0
        for index in range(length, len(table)):
            block_id = table[index].block_id
            if table[index].is_null:
                num_null += 1
                continue
            if num_null:
                recorder.rows.append((BLOCKS_SKIPPED, number, self._number, num_null))
            if block_id in scratch:
                recorder.rows.append((BLOCK_MOVED, block_id, number, self._number, scratch[block_id], index))
            else:
                recorder.rows.append((BLOCK_ALLOCATED, block_id, number, self._number, index))
            num_null = 0
        for source, copy in self._group._pending_cow_copies[num_copies:]:
            if copy not in table:  # the request continues in its block, and the copy keeps the state for a hit
                recorder.rows += [(BLOCK_PINNED, source.block_id, source.ref_cnt), (BLOCK_PINNED, copy.block_id, 1)]
                recorder.pins.update((source.block_id, copy.block_id))

    def _before_window(self, request_id: str, first_block: int, last_block: int) -> Owner | None:
        """Observe the freeing of a table's blocks between gaps, which vLLM does from the end of those freed before."""
        group, table = self._group, self._group.req_to_blocks.get(request_id, ())
        first = max(first_block, getattr(group, "_num_retired_blocks", {}).get(request_id, 0))
        blocks = ((index, table[index]) for index in range(first, min(last_block, len(table))))
        return self._owns(request_id, {block.block_id: index for index, block in blocks if not block.is_null}, "state")

    def _before_skipped(self, request_id: str, *_: Any, **__: Any) -> Owner | None:
        """Observe the one state that the method frees itself: the one copied in the previous step."""
        index: int | None = getattr(self._group, "last_state_block_idx", {}).get(request_id)
        table = self._group.req_to_blocks.get(request_id, ())
        index_of = {} if index is None or table[index].is_null else {table[index].block_id: index}
        return self._owns(request_id, index_of, "state")


def _num_leading_nulls(table: Sequence[Any]) -> int:
    return next((index for index, block in enumerate(table) if not block.is_null), len(table))
