"""FA3's package, served by the kernels in vLLM's wheel, for machines where flash-attn cannot be built.

LABENGINE_FA3_LIBRARY names the library (_vllm_fa3_C.abi3.so). It has only the functions that engines here call.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

torch.ops.load_library(os.environ["LABENGINE_FA3_LIBRARY"])
_fwd: Any = torch.ops._vllm_fa3_C.fwd


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    causal: bool,
    window: tuple[int, int] = (-1, -1),
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_k: Tensor | None = None,
    page_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    num_splits: int = 0,
) -> Tensor:
    """Call the operator, with its arguments by name; the last four are attention sinks and context parallelism."""
    keys = (k, v, None, None, None, None)
    lengths = (cu_seqlens_q, cu_seqlens_k, None, None, seqused_k, max_seqlen_q, max_seqlen_k)
    paging = (page_table, None, leftpad_k)
    rotary, scales = (None, None, None), (None, None, None)
    masking = (scale, causal, *window, 0.0, True)
    out: Tensor = _fwd(
        q, *keys, *lengths, *paging, *rotary, *scales, *masking, None, num_splits, None, 0, None, 1, 0, None
    )[0]
    return out


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor,
    page_table: Tensor,
    softmax_scale: float,
    cache_leftpad: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    max_seqlen_q: int | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    num_splits: int = 0,
) -> Tensor:
    """Like FA3's function, for a paged cache that already holds the new keys."""
    return forward(
        q,
        k_cache,
        v_cache,
        scale=softmax_scale,
        causal=causal,
        window=window_size,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=max_seqlen_q,
        seqused_k=cache_seqlens,
        page_table=page_table,
        leftpad_k=cache_leftpad,
        num_splits=num_splits,
    )
