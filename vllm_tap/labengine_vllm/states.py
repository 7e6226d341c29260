"""Observers of the tables of state groups (Mamba, linear attention): a block holds one state; most entries are null."""

from __future__ import annotations

from typing import Any

from labengine_vllm.groups import GroupObserver
from labengine_vllm.kinds import BLOCK_ALLOCATED, BLOCK_MOVED, BLOCK_PINNED, BLOCKS_SKIPPED
from labengine_vllm.recorder import Owner
from labengine_vllm.wrapping import Wrapping


class StateObserver(GroupObserver):
    """Observes the block tables of one state group. Which state is copied into which block follows from the tables."""

    def watch(self, wrapping: Wrapping) -> None:
        """Put the wrappers on the group."""
        super().watch(wrapping)
        wrapping.watch(self._group, "remove_skipped_blocks", self._before_skipped, self._after_freeing)

    def _before_growth(self, request_id: str, *_: Any, **__: Any) -> tuple[int, int, dict[int, int]]:
        """Return the length of a request's table, how many copies are to be made, and the scratch blocks' entries."""
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
            if copy not in table:  # the request goes on in its block, and the copy keeps the state for a hit
                recorder.rows += [(BLOCK_PINNED, source.block_id, source.ref_cnt), (BLOCK_PINNED, copy.block_id, 1)]
                recorder.pins.update((source.block_id, copy.block_id))

    def _before_window(self, request_id: str, first_block: int, last_block: int) -> Owner | None:
        """A table has gaps: vLLM frees what is left between them, from the end of what it has freed before."""
        group, table = self._group, self._group.req_to_blocks.get(request_id, ())
        first = max(first_block, getattr(group, "_num_retired_blocks", {}).get(request_id, 0))
        blocks = ((index, table[index]) for index in range(first, min(last_block, len(table))))
        return self._owns(request_id, {block.block_id: index for index, block in blocks if not block.is_null}, "state")

    def _before_skipped(self, request_id: str, *_: Any, **__: Any) -> Owner | None:
        """Of all that it passes on, the method itself frees one state: the one that was copied in the step before."""
        index: int | None = getattr(self._group, "last_state_block_idx", {}).get(request_id)
        table = self._group.req_to_blocks.get(request_id, ())
        index_of = {} if index is None or table[index].is_null else {table[index].block_id: index}
        return self._owns(request_id, index_of, "state")
