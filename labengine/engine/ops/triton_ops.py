"""Fused ops on a GPU: norm with the addition before it, norm and rotation of heads, gated activation.

The results equal those of modules.py and rope.py, rounded in the same places. Multiplications and additions are not
fused, because torch, op by op, does not fuse them either.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from labengine.engine.attention.triton_tiles import power_of_two
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.ops.triton_kernels import add_norm_kernel, gated_kernel, rotate_kernel, rotate_write_kernel

NUMBERS_PER_PROGRAM = 1024
"""Approximate number of values that one program of 4 warps loads at once: 8 per thread, 16 bytes of bfloat16."""


def add_rms_norm(
    hidden: Tensor, residual: Tensor | None, weight: Tensor, eps: float, offset: bool
) -> tuple[Tensor, Tensor]:
    """Return (norm(hidden + residual), hidden + residual), each [num_tokens, size]; change neither argument.

    offset: multiply by 1 + weight (OffsetRMSNorm). Without a residual the sum is `hidden` itself.
    """
    num_tokens, size = hidden.shape
    hidden, residual = _with_contiguous_rows(hidden), None if residual is None else _with_contiguous_rows(residual)
    normed = hidden.new_empty(num_tokens, size)
    summed = hidden if residual is None else hidden.new_empty(num_tokens, size)
    padded = power_of_two(size)
    add_norm_kernel[(num_tokens,)](
        hidden,
        residual,
        weight,
        normed,
        summed,
        hidden.stride(0),
        0 if residual is None else residual.stride(0),
        eps,
        SIZE=size,
        PADDED=padded,
        OFFSET=offset,
        num_warps=_num_warps(padded),
        enable_fp_fusion=False,
    )
    return normed, summed


def rotate_heads(heads: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, eps: float, offset: bool) -> None:
    """Norm (with a weight [head_dim]) and rotate heads [num_tokens, num_heads, head_dim] in place, like Rotation.

    heads may be a slice of qkv, but their last dimension has to be contiguous. cos, sin: float32 [num_tokens, 1,
    head_dim / 2].
    """
    num_tokens, num_heads, head_dim = heads.shape
    if heads.stride(2) != 1:
        raise ValueError("heads are rotated in place, so their last dimension must be contiguous")
    half = power_of_two(head_dim // 2)
    per_program = min(power_of_two(num_heads), max(1, NUMBERS_PER_PROGRAM // (2 * half)))
    rotate_kernel[num_tokens, -(-num_heads // per_program)](
        heads,
        cos.contiguous(),
        sin.contiguous(),
        weight,
        heads.stride(0),
        heads.stride(1),
        num_heads,
        eps,
        HALF=head_dim // 2,
        PADDED=half,
        HEADS=per_program,
        OFFSET=offset,
        num_warps=_num_warps(2 * half * per_program),
        enable_fp_fusion=False,
    )


def rotate_and_write(
    heads: Tensor,
    num_kv_heads: int,
    rotation: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor] | None,
    eps: float,
    offset: bool,
    slots: Tensor,
    cache: LayerKV,
) -> None:
    """Norm and rotate queries in place; write normed and rotated keys, and values, to their slots.

    heads: [num_tokens, num_heads + 2 * num_kv_heads, head_dim], queries, keys, values, the last dimension contiguous.
    rotation: cos and sin. weights: of the norms of queries and keys. slots: int32 [num_tokens], below 0 not written.
    """
    num_tokens, num_heads, head_dim = heads.shape
    if heads.stride(2) != 1:
        raise ValueError("heads are rotated in place, so their last dimension must be contiguous")
    half = power_of_two(head_dim // 2)
    per_program = min(power_of_two(num_heads), max(1, NUMBERS_PER_PROGRAM // (2 * half)))
    query_weight, key_weight = weights or (None, None)
    rotate_write_kernel[num_tokens, -(-num_heads // per_program)](
        heads,
        rotation[0].contiguous(),
        rotation[1].contiguous(),
        query_weight,
        key_weight,
        slots,
        cache.keys,
        cache.values,
        heads.stride(0),
        heads.stride(1),
        eps,
        HALF=head_dim // 2,
        PADDED=half,
        HEADS=per_program,
        NUM_HEADS=num_heads - 2 * num_kv_heads,
        NUM_KV_HEADS=num_kv_heads,
        OFFSET=offset,
        num_warps=_num_warps(2 * half * per_program),
        enable_fp_fusion=False,
    )


def gated(gate_up: Tensor, activation: Literal["silu", "gelu_tanh"]) -> Tensor:
    """Return activation(gate) * up of [num_tokens, 2 * size], the gate's columns first.

    The result is [num_tokens, size].
    """
    if activation not in ("silu", "gelu_tanh"):
        raise ValueError(f"activation must be silu or gelu_tanh, got {activation!r}")
    gate_up = _with_contiguous_rows(gate_up)
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_tokens, size, dtype=gate_up.dtype, device=gate_up.device)
    columns = min(NUMBERS_PER_PROGRAM, power_of_two(size))
    gated_kernel[num_tokens, -(-size // columns)](
        gate_up,
        out,
        gate_up.stride(0),
        SIZE=size,
        COLUMNS=columns,
        IS_GELU=activation == "gelu_tanh",
        num_warps=_num_warps(columns),
        enable_fp_fusion=False,
    )
    return out


def _num_warps(numbers: int) -> int:
    """Return the number of warps of a program that loads so many numbers: 8 per thread, up to 8 warps."""
    return max(1, min(8, numbers // 256))


def _with_contiguous_rows(matrix: Tensor) -> Tensor:
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()
