"""Observers of block tables: blocks that join a request's table, and blocks that leave it for the free queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from labengine_vllm.engine import Engine
from labengine_vllm.groups import GroupObserver, StateObserver
from labengine_vllm.kinds import (
    BLOCK_FREED,
    BLOCK_PINNED,
    BLOCK_UNPINNED,
)
from labengine_vllm.recorder import Recorder
from labengine_vllm.wrapping import Wrapping


def watch_tables(wrapping: Wrapping, engine: Engine, recorder: Recorder) -> None:
    """Observe the groups' tables, the pool's frees and the free queue's two ends."""
    kinds = [kind for kind, _, _ in engine.group_rows()]
    for number, (group, kind) in enumerate(zip(engine.groups, kinds, strict=True)):
        (StateObserver if kind == "state" else GroupObserver)(recorder, group, number).watch(wrapping)
    FreeObserver(recorder, engine.groups).watch(wrapping, engine)


class FreeObserver:
    """Observes the pool's frees. Each freed block's end of the queue is observed at the queue, not inferred."""

    def __init__(self, recorder: Recorder, groups: Sequence[Any]) -> None:
        self._recorder, self._groups = recorder, groups

    def watch(self, wrapping: Wrapping, engine: Engine) -> None:
        """Wrap methods of the pool and its free queue."""
        pool, queue = engine.pool, engine.queue
        wrapping.watch(queue, "prepend_n", self._before_prepend)
        wrapping.watch(queue, "append_n", self._before_append)
        wrapping.watch(pool, "free_blocks", self._before_free, self._after_free)
        wrapping.watch(pool, "touch", None, self._after_touch)
        wrapping.watch(pool, "unpin_blocks", self._before_unpin, self._after_unpin)
        observed = pool.free_blocks

        def free_blocks(ordered_blocks: Iterable[Any]) -> None:
            observed(list(ordered_blocks))  # an iterator can be read only once, by the observer or by the pool

        wrapping.replace(pool, "free_blocks", free_blocks)

    def _before_prepend(self, blocks: Sequence[Any]) -> None:
        self._recorder.to_head = (*blocks, *self._recorder.to_head)

    def _before_append(self, blocks: Sequence[Any]) -> None:
        self._recorder.to_tail = (*self._recorder.to_tail, *blocks)

    def _after_touch(self, found: None, result: None, blocks: Sequence[Any]) -> None:
        recorder = self._recorder
        if recorder.is_touching:
            return
        following = Counter(block.block_id for block in blocks)
        for block in blocks:
            following[block.block_id] -= 1
            if not block.is_null:
                recorder.rows.append((BLOCK_PINNED, block.block_id, block.ref_cnt - following[block.block_id]))
                recorder.pins[block.block_id] += 1

    def _before_unpin(self, blocks: Iterable[Any], *_: Any, **__: Any) -> None:
        self._before_free(list(blocks), "blocks were unpinned that had not been pinned", "BlockPool.unpin_blocks")

    def _after_unpin(self, found: None, result: None, blocks: Iterable[Any], *_: Any, **__: Any) -> None:
        self._report_unpinned(list(blocks))

    def _before_free(
        self,
        ordered_blocks: list[Any],
        why: str = "blocks were freed that are not in any table",
        by: str = "BlockPool.free_blocks",
    ) -> None:
        recorder, times = self._recorder, _ids_of(ordered_blocks)
        for block in ordered_blocks:
            if not block.is_null and block.ref_cnt < times[block.block_id]:
                return recorder.lose(f"block {block.block_id} was freed but had no reference", by)
        known = recorder.owner.index_of if recorder.owner is not None else {}
        others = Counter({block_id: times[block_id] for block_id in times if block_id not in known})
        if not others <= recorder.pins and not others.keys() - recorder.pins.keys() <= self._ids_in_tables():
            return recorder.lose(why, by)
        recorder.to_head = recorder.to_tail = ()

    def _ids_in_tables(self) -> set[int]:
        """Return the blocks of all tables, since readers must judge a block freed while still in one."""
        tables = (table for group in self._groups for table in group.req_to_blocks.values())
        return {block.block_id for table in tables for block in table}

    def _report_unpinned(self, blocks: list[Any]) -> None:
        """Report dropped references outside the freed table. A block may occur twice."""
        recorder, following = self._recorder, _ids_of(blocks)
        recorder.pins -= following
        queued = {block.block_id for block in (*recorder.to_head, *recorder.to_tail)}
        for block in blocks:
            if block.is_null:
                continue
            following[block.block_id] -= 1
            if following[block.block_id] or block.block_id not in queued:
                recorder.rows.append((BLOCK_UNPINNED, block.block_id, block.ref_cnt + following[block.block_id], None))
        recorder.rows.extend((BLOCK_UNPINNED, block.block_id, 0, "tail") for block in recorder.to_tail)
        recorder.rows.extend((BLOCK_UNPINNED, block.block_id, 0, "head") for block in reversed(recorder.to_head))

    def _after_free(self, found: None, result: None, ordered_blocks: list[Any]) -> None:
        """Report the frees in an order that reproduces the queue: those at the head come last."""
        if self._recorder.owner is None:
            return self._report_unpinned(ordered_blocks)
        to_head, to_tail = self._recorder.to_head, self._recorder.to_tail
        head_ids, tail_ids = ({block.block_id for block in blocks} for blocks in (to_head, to_tail))
        next_at_tail = iter(to_tail)  # in the queue's order, which may differ from the order of frees
        for block in ordered_blocks:
            if block.block_id in tail_ids:
                self._report(next(next_at_tail), "tail")
            elif block.block_id not in head_ids and not block.is_null:
                self._report(block, None)
        for block in reversed(to_head):
            self._report(block, "head")

    def _report(self, block: Any, queue_end: str | None) -> None:
        recorder, owner = self._recorder, self._recorder.owner
        assert owner is not None
        if block.block_id not in owner.index_of:
            recorder.pins -= _ids_of([block])
            return recorder.rows.append((BLOCK_UNPINNED, block.block_id, block.ref_cnt, queue_end))
        place = (owner.request_id, owner.group, owner.index_of[block.block_id])
        recorder.rows.append((BLOCK_FREED, block.block_id, *place, block.ref_cnt, queue_end, owner.reason))


def _ids_of(blocks: Iterable[Any]) -> Counter[int]:
    """Return how often each block occurs, without null blocks."""
    return Counter(block.block_id for block in blocks if not block.is_null)
