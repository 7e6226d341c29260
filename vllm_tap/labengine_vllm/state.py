"""An engine's state as a keyframe of labengine.trace.codec: what a reader begins with, or checks its fold against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from labengine_vllm.contents import group_of, hash_of, mapped_ids
from labengine_vllm.encoding import encoded
from labengine_vllm.engine import Engine
from labengine_vllm.recorder import Recorder

STATUS = {"RUNNING": "running", "PREEMPTED": "preempted"}
"""A status in vLLM and labengine's; the others wait, except finished requests that still hold blocks."""

ROWS_AT_ONCE = 500
"""Rows that are encoded in one piece: a millisecond in which the engine's thread cannot run."""

Row = tuple[Any, ...]


class Keyframe:
    """A copy of an engine's state, to be made between two of its steps, on its thread.

    Another thread makes rows of it. The copy has a few long lists of numbers and hashes: a list for each block would
    make Python's garbage collection go through vLLM's whole heap, several times in a keyframe of 100,000 blocks.
    """

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        pool, blocks = engine.pool, engine.pool.blocks
        served = pool.cached_block_hash_to_block._cache
        self._sizes = [group.block_size for group in engine.groups]
        self._has_tokens = recorder.tokens.are_sent
        self._step, self._groups, self._null_block = recorder.step, engine.group_rows(), pool.null_block.block_id
        requests = engine.scheduler.requests.items()
        self._requests = [_request_row(engine, recorder, name, request) for name, request in requests]
        self._ref_counts = [0 if block.is_null else block.ref_cnt for block in blocks]
        self._hashes = [block.block_hash for block in blocks]
        self._num_hashed = [block.block_hash_num_tokens for block in blocks]
        self._further = {block_id: tuple(keys) for block_id, keys in pool.cached_block_hashes_by_block.items() if keys}
        self._queue = list(islice(_queued(engine.queue), len(blocks) + 1))  # a broken one may be a circle
        self._keys = list(served)
        self._mapped = [mapped_ids(entry) if isinstance(entry, dict) else entry.block_id for entry in served.values()]

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
        yield "requests", self._requests
        yield "ref_counts", self._ref_counts
        yield "block_keys", self._block_keys()
        yield "block_tokens", dict(self._contents()).items() if self._has_tokens else ()
        yield "free_queue", self._queue
        yield "prefix_map", map(_map_row, self._keys, self._mapped)

    def _block_keys(self) -> Iterator[Row]:
        for block_id, key in enumerate(self._hashes):
            if key is not None:
                keys = (key, *self._further.get(block_id, ()))
                yield block_id, [(group_of(one), hash_of(one)) for one in keys]

    def _contents(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (block id, tokens) of full cached blocks in tables. vLLM does not keep the tokens of others."""
        for *_, token_ids, _, _, tables in self._requests:
            for table, size in zip(tables, self._sizes, strict=True):
                for index, block_id in enumerate(table):
                    if self._is_full(block_id, size):
                        yield block_id, token_ids[index * size : (index + 1) * size]

    def _is_full(self, block_id: int, size: int) -> bool:
        has_content = block_id != self._null_block and self._hashes[block_id] is not None
        return has_content and not self._num_hashed[block_id] % size


def _request_row(engine: Engine, recorder: Recorder, request_id: str, request: Any) -> Row:
    name = request.status.name
    status = "finished" if name.startswith("FINISHED") else STATUS.get(name, "waiting")
    in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
    num_computed = max(0, request.num_computed_tokens - in_flight)
    tables = [[block.block_id for block in group.req_to_blocks.get(request_id, ())] for group in engine.groups]
    number, token_ids = recorder.id_of(request_id), recorder.tokens.of(request)
    return number, status, token_ids, request.num_prompt_tokens, num_computed, tables


def _map_row(key: bytes, mapped: int | tuple[int, ...]) -> Row:
    return group_of(key), hash_of(key), mapped if isinstance(mapped, tuple) else (mapped,)


def _queued(queue: Any) -> Iterator[int]:
    block, last = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail
    while block is not None and block is not last:
        yield block.block_id
        block = block.next_free_block
