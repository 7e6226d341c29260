"""Top-k and top-p in Triton, on a GPU: only a row's likeliest tokens, its candidates, are sorted.

    collect_kernel   one program per row: finds how far below the largest logit the candidates reach, and lists them
    cut_kernel       one program per row: sorts them, cuts them by top-k and top-p, and selects the one at the number

A distance below the largest logit is at least 0, so its bits, read as an integer, have the same order. For a top-k up
to the number of chunks the reach is the k-th largest of the chunks' maxima, and chunks below it are not read. Any other
reach is found by histograms of these bits: the exponent, then 8 bits at a time, until few enough tokens are within it.
Among tokens as far away as the last candidate, the lower ids are taken, so candidates are the first tokens of the row.
"""
# Kernels are Python in form only: their arguments are pointers and constants of the compiler.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from labengine.engine.sampler_kernels import _first_above

DIGITS = tl.constexpr(256)
"""Number of values of the 8 bits that one histogram counts."""
BINS = tl.constexpr(512)
"""Number of a histogram's bins, at least the number of threads; the last bin is for tokens out of range."""
NO_TOKEN = tl.constexpr(0x7FFFFFFFFFFFFFFF)
"""Sorts after every candidate."""


@triton.jit
def _distances(logits, row_stride, row, token, size, largest):
    """Return the bits of each token's distance below the largest logit, int32; the largest integer after the end."""
    logit = tl.load(logits + row * row_stride + token, mask=token < size, other=float("-inf"))
    return tl.where(token < size, (largest - logit).to(tl.int32, bitcast=True), 0x7FFFFFFF)


@triton.jit
def _reach(logits, row_stride, row, size, largest, wanted, BLOCK: tl.constexpr, ROOM: tl.constexpr):
    """Return (within, tied, num_within): candidates are all tokens at distances up to `within`, then some at `tied`.

    There are at least `wanted` candidates. tied: -1, or a distance with so many tokens that including all of them would
    exceed ROOM.
    """
    index = tl.arange(0, BINS)
    begin, before, shift = 0, 0, 23
    within, tied, num_within = -1, -1, -1
    while num_within < 0:
        counts = tl.zeros([BINS], tl.int32)
        for start in range(0, size, BLOCK):
            token = start + tl.arange(0, BLOCK)
            bits = _distances(logits, row_stride, row, token, size, largest)
            digit = (bits - begin) >> shift
            is_inside = (token < size) & (bits >= begin) & (digit < DIGITS)
            counts += tl.histogram(tl.where(is_inside, digit, BINS - 1), BINS)
        ends = before + tl.cumsum(counts, 0)
        enough = tl.min(tl.where(ends >= wanted, index, DIGITS - 1), 0)
        end = tl.sum(tl.where(index == enough, ends, 0), 0)
        start_of_bin = begin + (enough << shift)
        if end <= ROOM:
            within, num_within = start_of_bin + ((1 << shift) - 1), end
        else:
            before = tl.sum(tl.where(index == enough, ends - counts, 0), 0)
            begin = start_of_bin
            if shift == 0:
                within, tied, num_within = begin - 1, begin, before
            shift = tl.maximum(shift - 8, 0)
    return within, tied, num_within


@triton.jit
def _nth_largest(maximum, chunk, n):
    """Return the n-th largest of the chunks' maxima, n >= 1."""
    return tl.max(tl.where(chunk == n - 1, tl.sort(maximum, descending=True), float("-inf")), 0)


@triton.jit
def _list(
    logits,
    maxima,
    candidates,
    row_stride,
    row,
    size,
    num_chunks,
    largest,
    within,
    tied,
    num_within,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """List the num_within tokens at distances up to `within`, then those at `tied`; return how many there are.

    Tokens beyond ROOM are counted, but not stored. A block is not read if all of its chunks' maxima are too far away.
    """
    num_listed, num_ties = 0, 0
    for start in range(0, size, BLOCK):
        chunk = start // CHUNK + tl.arange(0, BLOCK // CHUNK)
        maximum = tl.load(maxima + row * num_chunks + chunk, mask=chunk < num_chunks, other=float("-inf"))
        nearest = (largest - tl.max(maximum, 0)).to(tl.int32, bitcast=True)
        if nearest <= tl.maximum(within, tied):
            token = start + tl.arange(0, BLOCK)
            bits = _distances(logits, row_stride, row, token, size, largest)
            is_within = (token < size) & (bits <= within)
            is_tied = (token < size) & (bits == tied)
            place = num_listed + tl.cumsum(is_within.to(tl.int32), 0)
            place = tl.where(is_within, place, num_within + num_ties + tl.cumsum(is_tied.to(tl.int32), 0)) - 1
            key = (bits.to(tl.int64) << 32) | token.to(tl.int64)
            tl.store(candidates + row * ROOM + place, key, mask=(is_within | is_tied) & (place < ROOM))
            num_listed += tl.sum(is_within.to(tl.int32), 0)
            num_ties += tl.sum(is_tied.to(tl.int32), 0)
    return num_listed + num_ties


@triton.jit(do_not_specialize=["num_chunks", "num_rows"])
def collect_kernel(
    logits,
    maxima,
    draws,
    candidates,
    counts,
    row_stride,
    size,
    num_chunks,
    num_rows,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    PADDED: tl.constexpr,
    ROOM: tl.constexpr,
):
    """List one cut row's candidates in order of ids, as int64 [rows, ROOM] of distance and id; write their number.

    There are at least top-k of them, or half of ROOM without a top-k. Nothing is done for rows that are broken or not
    cut. draws: see sampler_kernels.choose_kernel. counts: int32 [rows].
    """
    row = tl.program_id(0).to(tl.int64)
    top_k = tl.load(draws + 2 * num_rows + row).to(tl.int32)
    chunk = tl.arange(0, PADDED)
    maximum = tl.load(maxima + row * num_chunks + chunk, mask=chunk < num_chunks, other=float("-inf"))
    largest = tl.max(maximum, 0)
    if (top_k > 0) & (tl.abs(largest) < float("inf")):
        wanted = tl.minimum(tl.where(top_k <= ROOM, top_k, ROOM // 2), size)
        # top_k chunks have a token at most this far away, so there are enough; no histogram is needed.
        within = (largest - _nth_largest(maximum, chunk, top_k)).to(tl.int32, bitcast=True)
        tied, num_within, count = -1, 0, ROOM + 1
        attempt = (top_k > num_chunks).to(tl.int32)
        while (count > ROOM) & (attempt < 2):
            if attempt == 1:
                within, tied, num_within = _reach(logits, row_stride, row, size, largest, wanted, BLOCK, ROOM)
            count = _list(
                logits, maxima, candidates, row_stride, row, size, num_chunks, largest, within, tied, num_within, BLOCK,
                CHUNK, ROOM,
            )  # fmt: skip
            attempt += 1
        tl.store(counts + row, tl.minimum(count, ROOM))


@triton.jit(do_not_specialize=["num_chunks", "num_rows"])
def cut_kernel(
    candidates,
    counts,
    draws,
    sums,
    sampled,
    size,
    num_chunks,
    num_rows,
    PADDED: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Overwrite choose_kernel's token of one cut row; write 2 under it if top-p reaches beyond the candidates.

    sums: float32 sums of the weights by chunk, for rows without top-k. The candidates' weights are float64.
    """
    row = tl.program_id(0).to(tl.int64)
    top_k = tl.load(draws + 2 * num_rows + row).to(tl.int32)
    is_finite = tl.load(sampled + num_rows + row)
    if (top_k > 0) & (is_finite == 1):
        rank = tl.arange(0, ROOM)
        count = tl.load(counts + row)
        key = tl.sort(tl.load(candidates + row * ROOM + rank, mask=rank < count, other=NO_TOKEN))
        distance = (key >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        root = tl.load(draws + row)
        weights = tl.exp2((-distance).to(tl.float64) * root * root)
        weights = tl.where(rank < tl.minimum(count, top_k), weights, 0.0)
        ends = tl.cumsum(weights, 0)
        total = tl.max(ends, 0)
        end = total
        if top_k >= size:
            chunk = tl.arange(0, PADDED)
            summed = tl.load(sums + row * num_chunks + chunk, mask=chunk < num_chunks, other=0.0)
            total = tl.sum(summed.to(tl.float64), 0)
        top_p = tl.load(draws + 3 * num_rows + row)
        reach = tl.where(top_p < 1.0, top_p * total, float("inf"))
        kept = tl.where((rank > 0) & (ends - weights >= reach), 0.0, weights)
        kept_ends = tl.cumsum(kept, 0)
        selected = _first_above(kept_ends, kept, rank, tl.load(draws + num_rows + row) * tl.max(kept_ends, 0))
        tl.store(sampled + row, tl.sum(tl.where(rank == selected, key & 0xFFFFFFFF, 0), 0))
        if (top_k >= size) & (count < size) & (end < top_p * total):
            tl.store(sampled + num_rows + row, 2)
