"""An engine's state as a keyframe of labengine.trace.codec: what a reader begins with, or checks its fold against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from labengine_vllm.contents import group_of, hash_of, mapped_ids
from labengine_vllm.engine import Engine
from labengine_vllm.recorder import Recorder

STATUS = {"RUNNING": "running", "PREEMPTED": "preempted"}
"""A status in vLLM and labengine's; the others wait, except finished requests that still hold blocks."""


def keyframe(engine: Engine, recorder: Recorder) -> dict[str, Any]:
    """Return the state, ready for JSON. To be called between two of the engine's steps, on its thread."""
    blocks, served = engine.pool.blocks, engine.pool.cached_block_hash_to_block._cache
    requests = engine.scheduler.requests
    return {
        "step": recorder.step,
        "groups": engine.group_rows(),
        "null_block": engine.pool.null_block.block_id,
        "requests": [_request_row(engine, recorder, name, request) for name, request in requests.items()],
        "ref_counts": [0 if block.is_null else block.ref_cnt for block in blocks],
        "block_keys": [(block.block_id, _keys(engine.pool, block)) for block in blocks if block.block_hash is not None],
        "block_tokens": list(dict(_contents(engine)).items()) if recorder.tokens.are_sent else [],
        "free_queue": list(islice(_queued(engine.queue), len(blocks) + 1)),  # a broken one may be a circle
        "prefix_map": [(group_of(key), hash_of(key), mapped_ids(entry)) for key, entry in served.items()],
    }


def _request_row(engine: Engine, recorder: Recorder, request_id: str, request: Any) -> tuple[Any, ...]:
    name = request.status.name
    status = "finished" if name.startswith("FINISHED") else STATUS.get(name, "waiting")
    in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
    num_computed = max(0, request.num_computed_tokens - in_flight)
    tables = [[block.block_id for block in _table(group, request)] for group in engine.groups]
    number, token_ids = recorder.id_of(request_id), recorder.tokens.of(request)
    return number, status, token_ids, request.num_prompt_tokens, num_computed, tables


def _table(group: Any, request: Any) -> Any:
    return group.req_to_blocks.get(request.request_id, ())


def _keys(pool: Any, block: Any) -> list[tuple[int, str]]:
    keys = (block.block_hash, *pool.cached_block_hashes_by_block.get(block.block_id, ()))
    return [(group_of(key), hash_of(key)) for key in keys]


def _contents(engine: Engine) -> Iterator[tuple[int, list[int]]]:
    """Yield (block id, tokens) of full cached blocks in tables. vLLM does not keep the tokens of others."""
    for request in engine.scheduler.requests.values():
        for group in engine.groups:
            size = group.block_size
            for index, block in enumerate(_table(group, request)):
                is_full = not block.is_null and block.block_hash is not None and not block.block_hash_num_tokens % size
                if is_full:
                    yield block.block_id, request._all_token_ids[index * size : (index + 1) * size]


def _queued(queue: Any) -> Iterator[int]:
    block, last = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail
    while block is not None and block is not last:
        yield block.block_id
        block = block.next_free_block
