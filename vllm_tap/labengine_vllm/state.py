"""An engine's state as a keyframe of labengine.record.files, with which a reader begins, or checks its fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from labengine_vllm.calls import CopiedCalls
from labengine_vllm.contents import group_of, hash_of, mapped_ids
from labengine_vllm.encoding import encoded
from labengine_vllm.engine import Engine
from labengine_vllm.recorder import Recorder

STATUS = {"RUNNING": "running", "PREEMPTED": "preempted"}
"""vLLM's statuses and labengine's; all others wait, except finished requests that still hold blocks."""

ROWS_AT_ONCE = 500
"""Most rows encoded in one piece, which stops the engine's thread for a millisecond."""

Row = tuple[Any, ...]


class Keyframe:
    """A copy of an engine's state, made on its thread between two steps.

    Another thread makes rows of it. The copy has a few long lists of numbers, hashes and references to blocks: one list
    per block would make Python's garbage collection traverse vLLM's whole heap, several times in a keyframe of 100,000
    blocks. A block's id never changes, so the copy keeps its reference, and the id is read later.
    """

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        pool, blocks, queue = engine.pool, engine.pool.blocks, engine.queue
        served = pool.cached_block_hash_to_block._cache
        self._sizes = [group.block_size for group in engine.groups]
        self._has_tokens = recorder.tokens.are_sent
        self._step, self._groups, self._null_block = recorder.step, engine.group_rows(), pool.null_block.block_id
        scheduler = engine.scheduler
        requests = scheduler.requests
        self._requests = [_CopiedRequest(engine, recorder, name, one) for name, one in requests.items()]
        self._calls = [CopiedCalls(engine, recorder, name, one) for name, one in requests.items()]
        self._running, self._waiting = (
            [recorder.ids[one.request_id] for one in islice(queue, len(requests)) if one.request_id in requests]
            for queue in (scheduler.running, scheduler.waiting)  # a broken queue may hold other objects, or be endless
        )
        self._ref_counts = [block.ref_cnt for block in blocks]
        self._ref_counts[self._null_block] = 0
        self._hashes = [block._block_hash for block in blocks]  # not the property: it takes four times as long
        self._further = {block_id: tuple(keys) for block_id, keys in pool.cached_block_hashes_by_block.items() if keys}
        self._first_free, self._last_free = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail
        self._next_free = [block.next_free_block for block in blocks]
        self._keys, self._mapped = list(served), list(served.values())
        if dict in set(map(type, self._mapped)):  # entries of several blocks may change
            self._mapped = [mapped_ids(entry) if type(entry) is dict else entry for entry in self._mapped]

    def document(self) -> dict[str, Any]:
        """Return the keyframe, ready for JSON."""
        return {name: list(rows) for name, rows in self._lists()} | self._others()

    def parts(self) -> Iterator[bytes]:
        """Yield the keyframe as JSON, part by part."""
        yield encoded(self._others())[:-1]
        for name, rows in self._lists():
            yield b"," + encoded(name) + b":["
            remaining, separator = iter(rows), b""
            while some := list(islice(remaining, ROWS_AT_ONCE)):
                yield separator + encoded(some)[1:-1]
                separator = b","
            yield b"]"
        yield b"}"

    def _others(self) -> dict[str, Any]:
        return {"step": self._step, "groups": self._groups, "null_block": self._null_block}

    def _lists(self) -> Iterator[tuple[str, Iterable[Any]]]:
        yield "requests", [request.row() for request in self._requests]
        yield "ref_counts", self._ref_counts
        yield "block_keys", self._block_keys()
        yield "block_tokens", dict(self._contents()).items() if self._has_tokens else ()
        yield "free_queue", self._queue()
        yield "prefix_map", map(_map_row, self._keys, self._mapped)
        yield "pins", self.pins().items()
        yield "holding", [request.number for request in self._requests if request.is_holding]
        yield "priorities", [(request.number, request.priority) for request in self._requests if request.priority]
        yield "running", self._running
        yield "waiting", self._waiting
        served = set(self._keys)
        yield "calls", (calls.row(served) for calls in self._calls)
        yield "drafts", [(request.number, request.drafts) for request in self._requests if request.drafts]

    def pins(self) -> Counter[int]:
        """Return, per block, its references outside tables."""
        held = (table for request in self._requests for table in request.tables)
        in_tables = Counter(block.block_id for table in held for block in table)
        return Counter(
            {
                block_id: ref_count - in_tables[block_id]
                for block_id, ref_count in enumerate(self._ref_counts)
                if ref_count > in_tables[block_id]
            }
        )

    def _block_keys(self) -> Iterator[Row]:
        for block_id, key in enumerate(self._hashes):
            if key is not None:
                keys = (key, *self._further.get(block_id, ()))
                yield block_id, [(group_of(one), hash_of(one)) for one in keys]

    def _queue(self) -> Iterator[int]:
        block, num_blocks = self._first_free, len(self._next_free)
        for _ in range(num_blocks + 1):  # a broken queue may be circular, or leave the pool
            if block is None or block is self._last_free:
                return
            yield block.block_id
            block = self._next_free[block.block_id] if 0 <= block.block_id < num_blocks else None

    def _contents(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (block id, tokens) of full cached blocks in tables. vLLM does not keep the tokens of others."""
        for request in self._requests:
            for table, lengths, size in zip(request.tables, request.num_hashed, self._sizes, strict=True):
                for block, num_hashed in zip(table, lengths, strict=True):
                    is_cached = block.block_id != self._null_block and self._hashes[block.block_id] is not None
                    if is_cached and not num_hashed % size:
                        yield block.block_id, request.token_ids[num_hashed - size : num_hashed]


class _CopiedRequest:
    """A copy of one request. tables: its blocks per group; num_hashed: the number of prefix tokens in each hash."""

    __slots__ = (
        "_counts",
        "_status",
        "drafts",
        "is_holding",
        "num_hashed",
        "number",
        "priority",
        "tables",
        "token_ids",
    )

    def __init__(self, engine: Engine, recorder: Recorder, request_id: str, request: Any) -> None:
        name = request.status.name
        self.is_holding = name.startswith("FINISHED")
        self._status = "finished" if self.is_holding else STATUS.get(name, "waiting")
        if name == "PREEMPTED" and request_id in recorder.has_loaded:
            self._status = "waiting"
        in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
        num_computed = recorder.loading.get(request_id, max(0, request.num_computed_tokens - in_flight))
        self._counts = request.num_prompt_tokens, 0 if self.is_holding else num_computed
        self.number, self.token_ids = recorder.id_of(request_id), recorder.tokens.of(request)
        self.priority = request.priority if engine.is_prioritized else 0
        self.drafts = () if engine.is_async or self.is_holding else recorder.tokens.drafts(request)
        self.tables = [list(group.req_to_blocks.get(request_id, ())) for group in engine.groups]
        self.num_hashed = [[block._block_hash_num_tokens for block in table] for table in self.tables]

    def row(self) -> Row:
        """Return the request as a row of a keyframe."""
        tables = [[block.block_id for block in table] for table in self.tables]
        return self.number, self._status, self.token_ids, *self._counts, tables


def _map_row(key: bytes, mapped: Any) -> Row:
    return group_of(key), hash_of(key), mapped if isinstance(mapped, tuple) else (mapped.block_id,)
