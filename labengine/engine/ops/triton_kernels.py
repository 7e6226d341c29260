"""Ops around attention as Triton kernels: each reads and writes once, computes in float32, and rounds like torch.

Like torch's modules, the kernels round to the weights' dtype after every op of modules.py and rope.py. Only the order
in which a row's squares are added may differ.
"""
# Kernels are Python in form only: their arguments are pointers and constants of the compiler.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _times_weight(wide, weight, dtype: tl.constexpr, OFFSET: tl.constexpr):
    """Multiply normalized float32 by a norm's weight, or 1 + weight; round to dtype, and return float32."""
    if OFFSET:
        return (wide * (1.0 + weight)).to(dtype).to(tl.float32)
    else:
        return (weight * wide.to(dtype).to(tl.float32)).to(dtype).to(tl.float32)


@triton.jit
def add_norm_kernel(
    hidden,
    residual,
    weight,
    normed,
    summed,
    hidden_stride,
    residual_stride,
    eps,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Add one row of the residual, if any, and normalize the sum."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, PADDED)
    exists = column < SIZE
    dtype: tl.constexpr = normed.dtype.element_ty
    wide = tl.load(hidden + row * hidden_stride + column, mask=exists, other=0.0).to(tl.float32)
    if residual is not None:
        wide += tl.load(residual + row * residual_stride + column, mask=exists, other=0.0).to(tl.float32)
        rounded = wide.to(dtype)
        tl.store(summed + row * SIZE + column, rounded, mask=exists)
        wide = rounded.to(tl.float32)
    scale = tl.load(weight + column, mask=exists, other=0.0).to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps)
    tl.store(normed + row * SIZE + column, _times_weight(wide, scale, dtype, OFFSET).to(dtype), mask=exists)


@triton.jit(do_not_specialize=["num_heads"])
def rotate_kernel(
    heads,
    cos,
    sin,
    weight,
    token_stride,
    head_stride,
    num_heads,
    eps,
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Norm (if there is a weight) and rotate HEADS heads of one token in place.

    A head is two halves of HALF numbers: dimension i is rotated with dimension i + HALF.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, PADDED)
    there = (head < num_heads)[:, None] & (column < HALF)[None, :]
    dtype: tl.constexpr = heads.dtype.element_ty
    upper = heads + token * token_stride + (head * head_stride)[:, None] + column[None, :]
    first = tl.load(upper, mask=there, other=0.0).to(tl.float32)
    second = tl.load(upper + HALF, mask=there, other=0.0).to(tl.float32)
    if weight is not None:
        scale_first = tl.load(weight + column, mask=column < HALF, other=0.0).to(tl.float32)[None, :]
        scale_second = tl.load(weight + HALF + column, mask=column < HALF, other=0.0).to(tl.float32)[None, :]
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        inverse = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
        first = _times_weight(first * inverse, scale_first, dtype, OFFSET)
        second = _times_weight(second * inverse, scale_second, dtype, OFFSET)
    cosine = tl.load(cos + token * HALF + column, mask=column < HALF, other=0.0)[None, :]
    sine = tl.load(sin + token * HALF + column, mask=column < HALF, other=0.0)[None, :]
    tl.store(upper, (first * cosine - second * sine).to(dtype), mask=there)
    tl.store(upper + HALF, (second * cosine + first * sine).to(dtype), mask=there)


@triton.jit
def rotate_write_kernel(
    heads,
    cos,
    sin,
    query_weight,
    key_weight,
    slots,
    key_cache,
    value_cache,
    token_stride,
    head_stride,
    eps,
    HALF: tl.constexpr,
    PADDED: tl.constexpr,
    HEADS: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Process HEADS of one token's consecutive queries, keys and values.

    Queries are normed and rotated in place, as by rotate_kernel. Keys are normed and rotated too, but go to the token's
    slot, like values; a slot below 0 is not written.
    """
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, PADDED)
    is_query = head < NUM_HEADS
    is_value = head >= NUM_HEADS + NUM_KV_HEADS
    exists = (column < HALF)[None, :]
    there = (head < NUM_HEADS + 2 * NUM_KV_HEADS)[:, None] & exists
    dtype: tl.constexpr = heads.dtype.element_ty
    upper = heads + token * token_stride + (head * head_stride)[:, None] + column[None, :]
    raw_first = tl.load(upper, mask=there, other=0.0)
    raw_second = tl.load(upper + HALF, mask=there, other=0.0)
    first, second = raw_first.to(tl.float32), raw_second.to(tl.float32)
    if query_weight is not None:
        by_query = tl.load(query_weight + column, mask=column < HALF, other=0.0).to(tl.float32)[None, :]
        by_key = tl.load(key_weight + column, mask=column < HALF, other=0.0).to(tl.float32)[None, :]
        scale_first = tl.where(is_query[:, None], by_query, by_key)
        by_query = tl.load(query_weight + HALF + column, mask=column < HALF, other=0.0).to(tl.float32)[None, :]
        by_key = tl.load(key_weight + HALF + column, mask=column < HALF, other=0.0).to(tl.float32)[None, :]
        scale_second = tl.where(is_query[:, None], by_query, by_key)
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        inverse = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
        first = _times_weight(first * inverse, scale_first, dtype, OFFSET)
        second = _times_weight(second * inverse, scale_second, dtype, OFFSET)
    cosine = tl.load(cos + token * HALF + column, mask=column < HALF, other=0.0)[None, :]
    sine = tl.load(sin + token * HALF + column, mask=column < HALF, other=0.0)[None, :]
    rotated_first = (first * cosine - second * sine).to(dtype)
    rotated_second = (second * cosine + first * sine).to(dtype)
    tl.store(upper, rotated_first, mask=is_query[:, None] & exists)
    tl.store(upper + HALF, rotated_second, mask=is_query[:, None] & exists)
    slot = tl.load(slots + token).to(tl.int64)
    kv_head = tl.where(is_value, head - NUM_HEADS - NUM_KV_HEADS, head - NUM_HEADS)
    target = ((slot * NUM_KV_HEADS + kv_head) * (2 * HALF))[:, None] + column[None, :]
    is_written = there & (slot >= 0)
    is_key = is_written & (~is_query & ~is_value)[:, None]
    tl.store(key_cache + target, rotated_first, mask=is_key)
    tl.store(key_cache + target + HALF, rotated_second, mask=is_key)
    tl.store(value_cache + target, raw_first, mask=is_written & is_value[:, None])
    tl.store(value_cache + target + HALF, raw_second, mask=is_written & is_value[:, None])


@triton.jit
def gated_kernel(gate_up, out, row_stride, SIZE: tl.constexpr, COLUMNS: tl.constexpr, IS_GELU: tl.constexpr):
    """Compute COLUMNS numbers of one row of activation(gate) * up."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    exists = column < SIZE
    dtype: tl.constexpr = out.dtype.element_ty
    gate = tl.load(gate_up + row * row_stride + column, mask=exists, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * row_stride + SIZE + column, mask=exists, other=0.0).to(tl.float32)
    slope = gate
    if IS_GELU:  # (1 + tanh(u)) / 2 is the sigmoid of 2 u
        slope = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    active = (gate / (1.0 + tl.exp(-slope))).to(dtype).to(tl.float32)
    tl.store(out + row * SIZE + column, (active * up).to(dtype), mask=exists)
