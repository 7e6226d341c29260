"""Paged attention in plain torch: gather each request's slots, then scaled_dot_product_attention.

The gather goes by slot and not by block, so that a slot nobody wrote is never read. The query heads that share a KV
head are packed as rows of one query: on a CPU, many queries of one row each would be slow.

    queries   [requests, queries, kv_heads * group, head_dim]
    packed    [requests, kv_heads, group * queries, head_dim]
    mask      [requests, 1,        group * queries, longest context]   (one row serves all when there is one query)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from labengine.engine.attention import AttentionBackend, StepAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """Requests that compute equally many tokens: all decodes are one such batch.

    rows: int64 [requests * queries], the batch's rows in the step; None when they are all rows, in order.
    slots: int64 [requests, longest context], in order of position; behind a request's own context its slot 0 again.
    mask: bool [requests, queries, longest context]; True where the query may read the slot.
    """

    rows: Tensor | None
    slots: Tensor
    mask: Tensor

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Queries and result are [requests * queries, num_heads, head_dim]."""
        num_requests, num_queries, length = self.mask.shape
        _, num_heads, head_dim = queries.shape
        num_kv_heads = cache.keys.shape[2]
        keys, values = (
            pool.view(-1, num_kv_heads * head_dim)
            .index_select(0, self.slots.view(-1))
            .view(num_requests, length, num_kv_heads, head_dim)
            .transpose(1, 2)
            for pool in (cache.keys, cache.values)
        )
        group = num_heads // num_kv_heads
        packed = queries.view(num_requests, num_queries, num_kv_heads, group, head_dim).permute(0, 2, 3, 1, 4)
        packed = packed.reshape(num_requests, num_kv_heads, group * num_queries, head_dim)
        mask = self.mask if num_queries == 1 else self.mask.repeat(1, group, 1)
        out = scaled_dot_product_attention(packed, keys, values, attn_mask=mask.unsqueeze(1), scale=scale)
        out = out.view(num_requests, num_kv_heads, group, num_queries, head_dim).permute(0, 3, 1, 2, 4)
        return out.reshape(num_requests * num_queries, num_heads, head_dim)


class TorchGatherStep(StepAttention):
    """One step's query batches."""

    def __init__(self, write_slots: Tensor, batches: list[QueryBatch]) -> None:
        self._write_slots = write_slots
        self._batches = batches

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """See StepAttention."""
        cache.keys.view(-1, *keys.shape[1:]).index_copy_(0, self._write_slots, keys)
        cache.values.view(-1, *values.shape[1:]).index_copy_(0, self._write_slots, values)

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """See StepAttention."""
        if self._batches[0].rows is None:
            return self._batches[0].attend(queries, cache, scale)
        out = torch.empty_like(queries)
        for batch in self._batches:
            assert batch.rows is not None
            out[batch.rows] = batch.attend(queries[batch.rows], cache, scale)
        return out


class TorchGather(AttentionBackend):
    """Gather and SDPA: slower than a kernel, but needs nothing and runs everywhere."""

    name = "torch_gather"

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Batch the requests that compute equally many tokens; decodes, and prompts of one length, run together."""
        members: dict[int, list[int]] = defaultdict(list)
        for index, query_len in enumerate(step.query_lens):
            members[query_len].append(index)
        batches = [_query_batch(step, group, indices, len(members) == 1) for indices in members.values()]
        return TorchGatherStep(group.slots, batches)


def _query_batch(step: StepTensors, group: GroupTensors, indices: list[int], is_whole_step: bool) -> QueryBatch:
    device = group.slots.device
    num_queries = step.query_lens[indices[0]]
    contexts = torch.tensor([step.context_lens[i] for i in indices], device=device).unsqueeze(1)
    length = max(step.context_lens[i] for i in indices)
    positions = torch.arange(length, device=device)
    reads = torch.where(positions < contexts, positions, 0)
    tables = group.block_tables if is_whole_step else group.block_tables[torch.tensor(indices, device=device)]
    slots = tables.gather(1, reads // group.block_size) * group.block_size + reads % group.block_size
    query_positions = contexts - num_queries + torch.arange(num_queries, device=device)
    mask = positions <= query_positions.unsqueeze(2)
    return QueryBatch(None if is_whole_step else _rows(step, indices, device), slots, mask)


def _rows(step: StepTensors, indices: list[int], device: torch.device) -> Tensor:
    first_rows = [sum(step.query_lens[:i]) for i in indices]
    num_queries = step.query_lens[indices[0]]
    return torch.cat([torch.arange(row, row + num_queries) for row in first_rows]).to(device)
