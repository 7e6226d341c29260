"""FA2's two calls that nano-vLLM imports, served by FA3, for a machine where flash-attn cannot be built."""

from __future__ import annotations

import torch
from flash_attn_interface import flash_attn_with_kvcache as _with_kvcache
from flash_attn_interface import forward
from torch import Tensor

__version__ = "0 (FA3 behind FA2's names)"


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool = False,
    block_table: Tensor | None = None,
) -> Tensor:
    """Attend to keys end to end, or in blocks."""
    is_paged = block_table is not None
    return forward(
        q,
        k,
        v,
        scale=softmax_scale,
        causal=causal,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=None if is_paged else cu_seqlens_k,
        seqused_k=cu_seqlens_k.diff().to(torch.int32) if is_paged else None,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        page_table=block_table,
    )


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    cache_seqlens: Tensor,
    block_table: Tensor,
    softmax_scale: float,
    causal: bool = False,
) -> Tensor:
    """Attend with one query per request."""
    return _with_kvcache(
        q,
        k_cache,
        v_cache,
        cache_seqlens=cache_seqlens,
        page_table=block_table,
        softmax_scale=softmax_scale,
        causal=causal,
    )
