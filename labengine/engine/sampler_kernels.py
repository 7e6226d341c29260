"""The sampler in Triton, on a GPU: each row of logits is cut into chunks, so that a single row has work for many SMs.

    survey_kernel   one program per row and chunk: the chunk's largest logit and its place
    weigh_kernel    one program per row and chunk of a drawn row: the sum of its tokens' weights
    choose_kernel   one program per row: the largest logit's token, or the chunk under the number and its token there

Rows with top-k or top-p have two more, in sampler_cut_kernels.py.

Logits are read once for a greedy row, and twice and one chunk for a drawn one. Weights are sampler.py's, in float64
and relative to the row's largest logit: drawn is the token that torch would draw, up to the order of float64 sums.
"""
# Kernels are Python in form only: their arguments are pointers and constants of the compiler.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _weights(logits, row_stride, row, token, size, largest, temperature):
    """Return the tokens' weights, float64; 0 behind the row's end."""
    logit = tl.load(logits + row * row_stride + token, mask=token < size, other=float("-inf"))
    return tl.exp((logit - largest).to(tl.float64) / temperature)


@triton.jit
def _first_above(ends, weights, index, goal):
    """Return the first index whose end exceeds the goal; without one the last. Indices of weight 0 are never selected.

    Neighbours' ends may be rounded differently, and the goal may be the very end.
    """
    last = tl.max(tl.where(weights > 0, index, 0), 0)
    return tl.min(tl.where((weights > 0) & (ends > goal), index, last), 0)


@triton.jit
def survey_kernel(logits, maxima, places, row_stride, size, num_chunks, CHUNK: tl.constexpr):
    """Write the largest logit of one chunk, and the first token that has it. NaN counts as infinity."""
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    logit = tl.load(logits + row * row_stride + token, mask=token < size, other=float("-inf"))
    largest, place = tl.max(tl.where(logit == logit, logit, float("inf")), 0, return_indices=True)
    tl.store(maxima + row * num_chunks + chunk, largest)
    tl.store(places + row * num_chunks + chunk, chunk * CHUNK + place)


@triton.jit
def weigh_kernel(
    logits,
    maxima,
    draws,
    sums,
    row_stride,
    size,
    num_chunks,
    num_rows,
    CHUNK: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Write the sum of one chunk's weights, unless the row is greedy, or its top-k needs no such sums.

    draws: see choose_kernel.
    """
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    temperature = tl.load(draws + row)
    top_k = tl.load(draws + 2 * num_rows + row)
    if (temperature > 0) & ((top_k == 0) | (top_k >= size)):
        other = tl.arange(0, PADDED)
        maximum = tl.load(maxima + row * num_chunks + other, mask=other < num_chunks, other=float("-inf"))
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        weights = _weights(logits, row_stride, row, token, size, tl.max(maximum, 0), temperature)
        tl.store(sums + row * num_chunks + chunk, tl.sum(weights, 0))


@triton.jit
def choose_kernel(
    logits,
    maxima,
    places,
    draws,
    sums,
    sampled,
    row_stride,
    size,
    num_chunks,
    num_rows,
    CHUNK: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Write one row's token, and whether its logits are finite, into sampled, int64 [2, rows].

    draws: float64 [4, rows], temperatures (0 for greedy rows), numbers in [0, 1), top-k and top-p; top-k is 0 for a row
    that is not cut, and the row's size or more for one without top-k. A cut row's token is left to cut_kernel. draws,
    sums: None when all rows are greedy.
    """
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, PADDED)
    exists = chunk < num_chunks
    maximum = tl.load(maxima + row * num_chunks + chunk, mask=exists, other=float("-inf"))
    largest, fullest = tl.max(maximum, 0, return_indices=True)
    selected = tl.load(places + row * num_chunks + fullest)
    if draws is not None:
        temperature = tl.load(draws + row)
        if (temperature > 0) & (tl.load(draws + 2 * num_rows + row) == 0):
            summed = tl.load(sums + row * num_chunks + chunk, mask=exists, other=0.0)
            ends = tl.cumsum(summed, 0)
            goal = tl.load(draws + num_rows + row) * tl.sum(summed, 0)
            into = _first_above(ends, summed, chunk, goal)
            before = tl.sum(tl.where(chunk < into, summed, 0.0), 0)
            token = into * CHUNK + tl.arange(0, CHUNK)
            weights = _weights(logits, row_stride, row, token, size, largest, temperature)
            selected = _first_above(before + tl.cumsum(weights, 0), weights, token, goal)
    is_finite = tl.abs(largest) < float("inf")
    tl.store(sampled + row, selected.to(tl.int64))
    tl.store(sampled + num_rows + row, is_finite.to(tl.int64))
