"""The sampler in Triton, on a GPU: each row of logits is cut into chunks, so a single row has work for many SMs.

    survey_kernel   one program per row and chunk: the chunk's largest logit and its place
    weigh_kernel    one program per row and chunk of a drawn row: the sum of its tokens' weights
    choose_kernel   one program per row: the largest logit's token, or the chunk under the number and its token there

Rows with top-k or top-p need two more kernels, in sampler_cut_kernels.py.

Logits are read once for a greedy row, and twice plus one chunk for a drawn one. Weights are as in sampler.py, relative
to the row's largest logit, but in float32, like the sums of chunks: in float64, many cards have a 64th of their speed.
Chunks, and the tokens of one chunk, are laid end to end in float64. So a row's token is the one that torch would draw,
unless its number lies within a few millionths of the border between two tokens.
"""
# Kernels are Python in form only: their arguments are pointers and constants of the compiler.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _weights(logits, row_stride, row, token, size, largest, root):
    """Return the tokens' weights, float32; 0 after the row's end.

    root: see triton_sampler.roots. It is finite and above 0, so a distance of 0 stays 0, and an infinite one infinite.
    """
    logit = tl.load(logits + row * row_stride + token, mask=token < size, other=float("-inf"))
    return tl.exp2((logit - largest) * root * root)


@triton.jit
def _first_above(ends, weights, index, goal):
    """Return the first index whose end exceeds the goal, else the last. An index of weight 0 is never selected.

    Neighbours' ends may be rounded differently. The goal may be at or beyond the very end, because a chunk's sum and
    the end of its tokens are rounded differently, too.
    """
    last = tl.max(tl.where(weights > 0, index, 0), 0)
    return tl.min(tl.where((weights > 0) & (ends > goal), index, last), 0)


@triton.jit(do_not_specialize=["num_chunks"])
def survey_kernel(logits, maxima, places, row_stride, size, num_chunks, CHUNK: tl.constexpr):
    """Write the largest logit of one chunk, and the first token that has it. NaN counts as infinity."""
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    logit = tl.load(logits + row * row_stride + token, mask=token < size, other=float("-inf"))
    largest, place = tl.max(tl.where(logit == logit, logit, float("inf")), 0, return_indices=True)
    tl.store(maxima + row * num_chunks + chunk, largest)
    tl.store(places + row * num_chunks + chunk, chunk * CHUNK + place)


@triton.jit(do_not_specialize=["num_chunks", "num_rows"])
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
    """Write the sum of one chunk's weights, unless the row is greedy or its top-k needs no such sums.

    draws: see choose_kernel.
    """
    chunk, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    root = tl.load(draws + row).to(tl.float32)
    top_k = tl.load(draws + 2 * num_rows + row).to(tl.int32)
    if (root > 0) & ((top_k == 0) | (top_k >= size)):
        other = tl.arange(0, PADDED)
        maximum = tl.load(maxima + row * num_chunks + other, mask=other < num_chunks, other=float("-inf"))
        token = chunk * CHUNK + tl.arange(0, CHUNK)
        weights = _weights(logits, row_stride, row, token, size, tl.max(maximum, 0), root)
        tl.store(sums + row * num_chunks + chunk, tl.sum(weights, 0))


@triton.jit(do_not_specialize=["num_chunks", "num_rows"])
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

    draws: float64 [4, rows], roots of temperatures (see triton_sampler.roots; 0 for greedy rows), numbers in [0, 1),
    top-k and top-p; top-k is 0 for a row that is not cut, and at least the row's size for a row without top-k. A cut
    row's token comes from cut_kernel. sums: float32. draws, sums: None if all rows are greedy.
    """
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, PADDED)
    exists = chunk < num_chunks
    maximum = tl.load(maxima + row * num_chunks + chunk, mask=exists, other=float("-inf"))
    largest, fullest = tl.max(maximum, 0, return_indices=True)
    selected = tl.load(places + row * num_chunks + fullest)
    if draws is not None:
        root = tl.load(draws + row).to(tl.float32)
        if (root > 0) & (tl.load(draws + 2 * num_rows + row) == 0):
            summed = tl.load(sums + row * num_chunks + chunk, mask=exists, other=0.0).to(tl.float64)
            ends = tl.cumsum(summed, 0)
            goal = tl.load(draws + num_rows + row) * tl.sum(summed, 0)
            into = _first_above(ends, summed, chunk, goal)
            before = tl.sum(tl.where(chunk < into, summed, 0.0), 0)
            token = into * CHUNK + tl.arange(0, CHUNK)
            weights = _weights(logits, row_stride, row, token, size, largest, root)
            # In float64, because in float32 a light token after a heavy one would have no length at all.
            selected = _first_above(tl.cumsum(weights.to(tl.float64), 0), weights, token, goal - before)
    is_finite = tl.abs(largest) < float("inf")
    tl.store(sampled + row, selected.to(tl.int64))
    tl.store(sampled + num_rows + row, is_finite.to(tl.int64))
