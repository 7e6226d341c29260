"""flash-attn's two packages in float64 torch: their signatures, their checks, and their NaNs from masked values.

Keys are loaded in tiles of 64. A key in a tile that a query must not see gets the weight 0, and 0 * NaN is
NaN, as on the GPU; a table's entry is followed for every position of a tile before the context's end. Behind that end
rows are cleared, but for FA3's whole-tile copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

TILE = 64
Window = tuple[int, int]


@dataclass
class Request:
    """One request's share of a call: queries [rows, heads, dim], its context, its row of the table."""

    queries: Tensor
    context: int
    table: Tensor


def fa2(version: str = "2.8.3") -> ModuleType:
    """The package flash_attn."""
    module = ModuleType("flash_attn")
    module.__version__ = version  # type: ignore[attr-defined]
    module.calls = []  # type: ignore[attr-defined]

    def flash_attn_with_kvcache(
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        k: Tensor | None = None,
        v: Tensor | None = None,
        rotary_cos: Tensor | None = None,
        rotary_sin: Tensor | None = None,
        cache_seqlens: Tensor | None = None,
        cache_batch_idx: Tensor | None = None,
        cache_leftpad: Tensor | None = None,
        block_table: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: Window = (-1, -1),
        softcap: float = 0.0,
        rotary_interleaved: bool = True,
        alibi_slopes: Tensor | None = None,
        num_splits: int = 0,
        return_softmax_lse: bool = False,
    ) -> Tensor:
        module.calls.append("flash_attn_with_kvcache")
        assert q.dim() == 4 and cache_seqlens is not None and block_table is not None and softmax_scale is not None
        check(q, k_cache, v_cache, block_table, cache_seqlens)
        assert k_cache.shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256"
        requests = [Request(q[i], int(cache_seqlens[i]), block_table[i]) for i in range(len(q))]
        return torch.stack([attend(r, k_cache, v_cache, softmax_scale, causal, window_size) for r in requests])

    def flash_attn_varlen_func(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: Window = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
        return_attn_probs: bool = False,
        block_table: Tensor | None = None,
    ) -> Tensor:
        module.calls.append("flash_attn_varlen_func")
        assert block_table is not None and softmax_scale is not None
        check(q, k, v, block_table, cu_seqlens_q, cu_seqlens_k)
        assert k.shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256"
        assert len(cu_seqlens_q) == len(cu_seqlens_k) == len(block_table) + 1
        contexts = cu_seqlens_k.diff()
        requests = varlen(q, cu_seqlens_q, contexts, block_table)
        assert int(contexts.max()) <= max_seqlen_k and int(cu_seqlens_q.diff().max()) <= max_seqlen_q
        return torch.cat([attend(r, k, v, softmax_scale, causal, window_size) for r in requests])

    module.flash_attn_with_kvcache = flash_attn_with_kvcache  # type: ignore[attr-defined]
    module.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    return module


def fa3() -> ModuleType:
    """The package flash_attn_interface. full_tiles: for each call, whether complete tiles are copied."""
    module = ModuleType("flash_attn_interface")
    module.calls, module.full_tiles = [], []  # type: ignore[attr-defined]

    def flash_attn_with_kvcache(
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        k: Tensor | None = None,
        v: Tensor | None = None,
        qv: Tensor | None = None,
        rotary_cos: Tensor | None = None,
        rotary_sin: Tensor | None = None,
        cache_seqlens: Tensor | None = None,
        cache_batch_idx: Tensor | None = None,
        cache_leftpad: Tensor | None = None,
        page_table: Tensor | None = None,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_k_new: Tensor | None = None,
        max_seqlen_q: int | None = None,
        rotary_seqlens: Tensor | None = None,
        q_descale: Tensor | None = None,
        k_descale: Tensor | None = None,
        v_descale: Tensor | None = None,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: Window = (-1, -1),
        attention_chunk: int = 0,
        softcap: float = 0.0,
        rotary_interleaved: bool = True,
        scheduler_metadata: Tensor | None = None,
        num_splits: int = 0,
        pack_gqa: bool | None = None,
        sm_margin: int = 0,
        return_softmax_lse: bool = False,
    ) -> Tensor:
        module.calls.append("decode" if cu_seqlens_q is None else "varlen")
        assert cache_seqlens is not None and page_table is not None and softmax_scale is not None
        check(q, k_cache, v_cache, page_table, cache_seqlens)
        if cache_leftpad is not None:
            check(q, k_cache, v_cache, page_table, cache_leftpad)
            assert not cache_leftpad.any()
        longest, group = q.shape[1], q.shape[-2] // k_cache.shape[2]
        if cu_seqlens_q is not None:
            assert max_seqlen_q is not None, "max_seqlen_q must be provided if cu_seqlens_q is provided"
            check(q, k_cache, v_cache, page_table, cu_seqlens_q)
            longest = max_seqlen_q
        copies_tiles = k_cache.shape[1] % TILE == 0 and longest * group > 128 and cache_leftpad is None
        module.full_tiles.append(copies_tiles)

        def result(request: Request) -> Tensor:
            return attend(request, k_cache, v_cache, softmax_scale, causal, window_size, copies_tiles)

        if cu_seqlens_q is None:
            return torch.stack([result(Request(q[i], int(cache_seqlens[i]), page_table[i])) for i in range(len(q))])
        return torch.cat([result(request) for request in varlen(q, cu_seqlens_q, cache_seqlens, page_table)])

    module.flash_attn_with_kvcache = flash_attn_with_kvcache  # type: ignore[attr-defined]
    return module


def check(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *lengths: Tensor) -> None:
    """What the real ones check before they launch anything."""
    assert q.dtype in (torch.float16, torch.bfloat16), "FlashAttention only supports fp16 and bf16"
    assert k.dtype == v.dtype == q.dtype
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == table.stride(-1) == 1
    assert table.dtype == torch.int32, "block_table must have dtype torch.int32"
    assert all(t.dtype == torch.int32 and t.is_contiguous() for t in lengths)
    assert q.shape[-2] % k.shape[2] == 0 and q.shape[-1] % 8 == 0


def varlen(q: Tensor, starts: Tensor, contexts: Tensor, tables: Tensor) -> list[Request]:
    """The requests whose queries lie end to end."""
    ends = starts.tolist()
    assert ends[-1] == len(q)
    return [Request(q[ends[i] : ends[i + 1]], int(contexts[i]), tables[i]) for i in range(len(tables))]


def attend(
    request: Request,
    k_pool: Tensor,
    v_pool: Tensor,
    scale: float,
    causal: bool,
    window: Window,
    copies_tiles: bool = False,
) -> Tensor:
    """One request, all heads; rows that see nothing are 0."""
    queries, end = request.queries, request.context
    if end == 0:
        return torch.zeros_like(queries)
    query_positions = end - len(queries) + torch.arange(len(queries))
    first = 0 if window[0] < 0 else max(0, int(query_positions[0]) - window[0]) // TILE * TILE
    positions = torch.arange(first, -(-end // TILE) * TILE)
    keys, values = (loaded(pool, request.table, positions, end, copies_tiles) for pool in (k_pool, v_pool))
    sees = positions < end
    if causal:
        sees = sees & (positions <= query_positions.unsqueeze(1))
    if window[0] >= 0:
        sees = sees & (positions >= query_positions.unsqueeze(1) - window[0])
    group = queries.shape[1] // keys.shape[1]
    keys, values = (t.repeat_interleave(group, dim=1) for t in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", queries.double(), keys) * scale
    weights = scores.masked_fill(~sees, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(queries.dtype)


def loaded(pool: Tensor, table: Tensor, positions: Tensor, end: int, copies_tiles: bool) -> Tensor:
    """Rows of the pool at these positions, in float64."""
    block_size = pool.shape[1]
    last = (end - 1) // block_size
    inside = positions // block_size <= last if copies_tiles else positions < end
    entries = table[(positions // block_size).clamp(max=last)].long()
    assert bool(((entries >= 0) & (entries < len(pool)))[inside].all()), "an illegal memory access was encountered"
    rows = pool.flatten(0, 1)[(entries * block_size + positions % block_size) * inside].double()
    return torch.where(inside.view(-1, 1, 1), rows, 0.0)
