"""Paged attention in plain torch: gather each request's slots, then scaled_dot_product_attention.

The gather goes by slot and not by block, so that unwritten slots are never read, and starts where the window does. So a
request reads only its own, finite values. The query heads that share a KV head are packed as rows of one query, because
on a CPU many queries of one row each would be slow. Long chunks are cut into tiles, so that a prompt's triangle or a
window's band is computed without most of the square around it.

    queries   [tiles, queries, kv_heads * group, head_dim]
    packed    [tiles, kv_heads, group * queries, head_dim]
    mask      [tiles, 1,        group * queries, longest]   (one row serves all when there is one query)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors, first_read

TILE_QUERIES = 256
"""Number of a chunk's queries computed at a time."""


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """Tiles with equal numbers of queries, such as all decodes.

    rows: int64 [tiles * queries], the batch's rows in the step; None if they are all rows, in order.
    slots: int64 [tiles, longest], from the first position that the first query reads to the last one's own, then
    padding with the first slot.
    mask: bool [tiles, queries, longest]; True where the query may read the slot.
    """

    rows: Tensor | None
    slots: Tensor
    mask: Tensor

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend; queries and result are [tiles * queries, num_heads, head_dim]."""
        num_tiles, num_queries, length = self.mask.shape
        _, num_heads, head_dim = queries.shape
        num_kv_heads = cache.keys.shape[2]
        keys, values = (
            pool.view(-1, num_kv_heads * head_dim)
            .index_select(0, self.slots.view(-1))
            .view(num_tiles, length, num_kv_heads, head_dim)
            .transpose(1, 2)
            for pool in (cache.keys, cache.values)
        )
        group = num_heads // num_kv_heads
        packed = queries.view(num_tiles, num_queries, num_kv_heads, group, head_dim).permute(0, 2, 3, 1, 4)
        packed = packed.reshape(num_tiles, num_kv_heads, group * num_queries, head_dim)
        mask = self.mask if num_queries == 1 else self.mask.repeat(1, group, 1)
        if packed.device.type == "cpu":
            # torch's kernel for 16-bit numbers rounds inside the sum, and differently with other padding: 4 of 10
            # results differ from the rounded exact one, and a request's tokens would depend on its neighbours.
            packed, keys, values = packed.float(), keys.float(), values.float()
        out = scaled_dot_product_attention(packed, keys, values, attn_mask=mask.unsqueeze(1), scale=scale)
        out = out.to(queries.dtype).view(num_tiles, num_kv_heads, group, num_queries, head_dim).permute(0, 3, 1, 2, 4)
        return out.reshape(num_tiles * num_queries, num_heads, head_dim)


class TorchGatherStep(StepAttention):
    """One step's query batches, and the slots of its KV."""

    def __init__(self, write_slots: Tensor, batches: list[QueryBatch]) -> None:
        self._write_slots = write_slots
        self._batches = batches

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the KV by index."""
        cache.keys.view(-1, *keys.shape[1:]).index_copy_(0, self._write_slots, keys)
        cache.values.view(-1, *values.shape[1:]).index_copy_(0, self._write_slots, values)

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend batch by batch."""
        if self._batches[0].rows is None:
            return self._batches[0].attend(queries, cache, scale)
        out = torch.empty_like(queries)
        for batch in self._batches:
            assert batch.rows is not None
            out[batch.rows] = batch.attend(queries[batch.rows], cache, scale)
        return out


class Tile(NamedTuple):
    """Consecutive queries of one request, at rows row.. of the step and positions start.., reading from `first` on."""

    request: int
    row: int
    start: int
    num_queries: int
    first: int

    @property
    def end(self) -> int:
        """The position after the last query; reads end before it."""
        return self.start + self.num_queries

    @property
    def shape(self) -> tuple[int, int]:
        """Key of the batch: all decodes are computed together, other tiles with tiles that read about as much."""
        return self.num_queries, 0 if self.num_queries == 1 else (self.end - self.first) // TILE_QUERIES


class TorchGather(AttentionBackend):
    """Gather and SDPA: slower than a kernel, but without requirements."""

    name = "torch"
    advantage = "plain torch: any device, any block size"

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """Return None, as every setting is served."""
        return None

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Batch the queries: decodes together, and prompts of one length together."""
        batches: dict[tuple[int, int], list[Tile]] = defaultdict(list)
        for tile in _tiles(step, group.window):
            batches[tile.shape].append(tile)
        covers_step = len(batches) == 1
        return TorchGatherStep(
            group.slots.long(), [_query_batch(group, tiles, covers_step) for tiles in batches.values()]
        )


def _tiles(step: StepTensors, window: int | None) -> Iterator[Tile]:
    """Yield all queries in order; a long chunk is cut into tiles, each reading only the keys that it needs."""
    row = 0
    for request, (num_queries, context) in enumerate(zip(step.query_lens, step.context_lens, strict=True)):
        for start in range(context - num_queries, context, TILE_QUERIES):
            length = min(TILE_QUERIES, context - start)
            yield Tile(request, row, start, length, first_read(start, window))
            row += length


def _query_batch(group: GroupTensors, tiles: list[Tile], covers_step: bool) -> QueryBatch:
    device = group.slots.device
    requests, rows, starts, num_queries, firsts = torch.tensor(tiles, device=device).T.unsqueeze(2)
    queries = torch.arange(tiles[0].num_queries, device=device)
    positions = firsts + torch.arange(max(tile.end - tile.first for tile in tiles), device=device)
    reads = torch.where(positions < starts + num_queries, positions, firsts)
    tables = group.block_tables[requests.squeeze(1)]
    slots = tables.gather(1, reads // group.block_size).long() * group.block_size + reads % group.block_size
    query_positions = (starts + queries).unsqueeze(2)
    mask = positions.unsqueeze(1) <= query_positions
    if group.window is not None:
        mask &= positions.unsqueeze(1) > query_positions - group.window
    return QueryBatch(None if covers_step else (rows + queries).flatten(), slots, mask)
