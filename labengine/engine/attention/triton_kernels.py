"""Paged attention on a GPU, in Triton: KV is written to its slots, and queries attend through block tables.

One kernel attends, for decodes and for prompts. A program takes one *tile*: a few queries of one request, with all the
query heads that share one KV head, as rows of one matrix, so that a key is loaded once for all of them:

    row      0   1  ...  GROUP-1 | GROUP  ...  2*GROUP-1 | ...  QUERIES*GROUP-1 | up to ROWS
    query    0   0       0       | 1           1         |      QUERIES-1       | (empty)
    head     0   1       GROUP-1 | 0           GROUP-1   |      GROUP-1         |

A decode is a tile of one query. If there are too few tiles to fill a GPU, each tile's keys are cut into spans that are
attended to separately, and a second kernel joins them.

Keys are read KEYS at a time, at multiples of KEYS, with a running softmax in base 2. The table entries of the next
step are read while this one's keys are loaded, so addresses are known early and copies to shared memory can run several
steps ahead. Table entries and slots outside the tile's reads are not loaded, so they may hold NaN.
"""
# Kernels are Python in form only: their arguments are pointers and constants of the compiler.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

NOTHING_YET = tl.constexpr(-1.0e30)
"""The running maximum before any key. It is finite, so that its distance from itself is 0 and not NaN."""


@triton.jit
def write_kernel(
    keys,
    values,
    key_cache,
    value_cache,
    slots,
    key_stride,
    value_stride,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Copy one token's keys and values, SIZE numbers each, to its slot; a slot below 0 is not written."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    column = tl.arange(0, PADDED)
    exists = column < SIZE
    key = tl.load(keys + token * key_stride + column, mask=exists)
    value = tl.load(values + token * value_stride + column, mask=exists)
    written = column < tl.where(slot < 0, 0, SIZE)
    tl.store(key_cache + slot * SIZE + column, key, mask=written)
    tl.store(value_cache + slot * SIZE + column, value, mask=written)


@triton.jit
def _tile(item, tiles, contexts, query_starts, QUERIES: tl.constexpr):
    """Return a tile's request, its first row in the batch, its number of queries, and the position of the first.

    tiles: [num_tiles, 2], request and first query of each; None if tile i is the one query of request i, in row i.
    """
    if tiles is None:
        return item, item, 1, tl.load(contexts + item) - 1
    else:
        request = tl.load(tiles + 2 * item)
        skipped = tl.load(tiles + 2 * item + 1)
        row = tl.load(query_starts + request)
        length = tl.load(query_starts + request + 1) - row
        position = tl.load(contexts + request) - length + skipped
        return request, row + skipped, tl.minimum(length - skipped, QUERIES), position


@triton.jit
def _reach(position, num_queries, num_spans, WINDOW: tl.constexpr, KEYS: tl.constexpr, LEAST: tl.constexpr):
    """Return a tile's reads [first, end), the start of the walk over them, and the length of each span."""
    end = position + num_queries
    first = 0
    if WINDOW > 0:
        first = tl.maximum(position - WINDOW + 1, 0)
    begin = first // KEYS * KEYS
    num_steps = tl.cdiv(tl.cdiv(end - begin, KEYS), num_spans)
    return first, end, begin, tl.maximum(num_steps, LEAST) * KEYS


@triton.jit
def _entries(table, start, first, end, BLOCK_SIZE: tl.constexpr, KEYS: tl.constexpr):
    """Return the blocks of positions start to start + KEYS.

    One number if all are in one block, else one per position.
    """
    if BLOCK_SIZE % KEYS == 0:
        return tl.load(table + start // BLOCK_SIZE, mask=start < end, other=0).to(tl.int64)
    else:
        at = start + tl.arange(0, KEYS)
        return tl.load(table + at // BLOCK_SIZE, mask=(at >= first) & (at < end), other=0).to(tl.int64)


@triton.jit
def _walk(
    query,
    largest,
    total,
    summed,
    keys,
    values,
    table,
    begin,
    stop,
    first,
    end,
    position,
    scale,
    SLOT: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Attend to positions [begin, stop) of the tile's reads [first, end); MASKED unless every row sees them all.

    largest, total, summed: the running softmax, [ROWS], [ROWS] and [ROWS, PADDED]; SLOT: numbers per slot.
    """
    step = tl.arange(0, KEYS)
    column = tl.arange(0, PADDED)
    block = _entries(table, begin, first, stop, BLOCK_SIZE, KEYS)
    for start in range(begin, stop, KEYS):
        next_block = _entries(table, start + KEYS, first, stop, BLOCK_SIZE, KEYS)
        at = start + step
        if BLOCK_SIZE % KEYS == 0:
            offset = (block * BLOCK_SIZE + start % BLOCK_SIZE) * SLOT + (step * SLOT)[:, None] + column[None, :]
        else:
            offset = ((block * BLOCK_SIZE + at % BLOCK_SIZE) * SLOT)[:, None] + column[None, :]
        block = next_block
        if MASKED:
            there = ((at >= first) & (at < end))[:, None] & (column < HEAD_DIM)[None, :]
            key = tl.load(keys + offset, mask=there, other=0.0)
            value = tl.load(values + offset, mask=there, other=0.0)
        elif PADDED > HEAD_DIM:
            key = tl.load(keys + offset, mask=(column < HEAD_DIM)[None, :], other=0.0)
            value = tl.load(values + offset, mask=(column < HEAD_DIM)[None, :], other=0.0)
        else:
            key = tl.load(keys + offset)
            value = tl.load(values + offset)
        if WIDEN:
            key = key.to(tl.float32)
            value = value.to(tl.float32)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        if MASKED:
            sees = (at < end)[None, :] & (at[None, :] <= position[:, None])
            if WINDOW > 0:
                sees = sees & (at[None, :] > position[:, None] - WINDOW)
            score = tl.where(sees, score, float("-inf"))
        larger = tl.maximum(largest, tl.max(score, 1))
        weight = tl.exp2(score - larger[:, None])
        rescale = tl.exp2(largest - larger)
        total = total * rescale + tl.sum(weight, 1)
        summed = tl.dot(weight.to(value.dtype), value, summed * rescale[:, None], input_precision="ieee")
        largest = larger
    return largest, total, summed


@triton.jit(do_not_specialize=["table_stride", "num_spans"])
def attend_kernel(
    queries,
    key_cache,
    value_cache,
    tables,
    contexts,
    query_starts,
    tiles,
    out,
    partial_sums,
    partial_totals,
    scale,
    query_stride,
    table_stride,
    num_spans,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    LEAST: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Attend from one tile to one span of its keys; programs are (KV head, span, tile).

    scale: of the scores, times log2(e). Without IS_SPLIT there is one span, and the result goes to `out`; else partial
    sums and their (maximum, total) go to partial_sums [tiles, KV heads, spans, QUERIES * GROUP, HEAD_DIM] and
    partial_totals.
    """
    head = tl.program_id(0)
    span = tl.program_id(1)
    request, row, num_queries, start = _tile(tl.program_id(2), tiles, contexts, query_starts, QUERIES)
    first, end, begin, length = _reach(start, num_queries, num_spans, WINDOW, KEYS, LEAST)
    begin += span * length
    stop = tl.minimum(begin + length, end)
    if IS_SPLIT:  # noqa: SIM102 - of these two, the compiler decides the first
        if begin >= end:
            return
    lane = tl.arange(0, ROWS)
    column = tl.arange(0, PADDED)
    query_of = lane // GROUP
    is_row = query_of < num_queries
    there = is_row[:, None] & (column < HEAD_DIM)[None, :]
    batch_row = (row + query_of).to(tl.int64)
    in_row = (head * GROUP + lane % GROUP) * HEAD_DIM
    query = tl.load(queries + (batch_row * query_stride + in_row)[:, None] + column[None, :], mask=there, other=0.0)
    if WIDEN:
        query = query.to(tl.float32)
    position = start + query_of
    largest = tl.full([ROWS], NOTHING_YET, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, PADDED], tl.float32)
    keys = key_cache + head * HEAD_DIM
    values = value_cache + head * HEAD_DIM
    table = tables + tl.cast(request, tl.int64) * table_stride
    SLOT: tl.constexpr = NUM_KV_HEADS * HEAD_DIM
    # A decode masks everywhere: it is bound by the copies, and a single walk keeps them running.
    first_full = begin
    diagonal = begin
    if QUERIES > 1:
        if WINDOW > 0:
            first_full = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(end - WINDOW, 0), KEYS) * KEYS, begin), stop)
            largest, total, summed = _walk(
                query, largest, total, summed, keys, values, table, begin, first_full, first, end, position, scale,
                SLOT, HEAD_DIM, PADDED, BLOCK_SIZE, WINDOW, KEYS, True, WIDEN,
            )  # fmt: skip
        diagonal = tl.maximum(tl.minimum((start + 1) // KEYS * KEYS, stop), first_full)
        largest, total, summed = _walk(
            query, largest, total, summed, keys, values, table, first_full, diagonal, first, end, position, scale,
            SLOT, HEAD_DIM, PADDED, BLOCK_SIZE, WINDOW, KEYS, False, WIDEN,
        )  # fmt: skip
    largest, total, summed = _walk(
        query, largest, total, summed, keys, values, table, diagonal, stop, first, end, position, scale,
        SLOT, HEAD_DIM, PADDED, BLOCK_SIZE, WINDOW, KEYS, True, WIDEN,
    )  # fmt: skip
    if IS_SPLIT:
        part = (tl.program_id(2) * NUM_KV_HEADS + head) * num_spans + span
        part_row = part.to(tl.int64) * (QUERIES * GROUP) + lane
        tl.store(partial_sums + part_row[:, None] * HEAD_DIM + column[None, :], summed, mask=there)
        tl.store(partial_totals + 2 * part_row, largest, mask=is_row)
        tl.store(partial_totals + 2 * part_row + 1, total, mask=is_row)
    else:
        result = summed / tl.where(total == 0.0, 1.0, total)[:, None]
        to = (batch_row * (NUM_KV_HEADS * GROUP * HEAD_DIM) + in_row)[:, None] + column[None, :]
        tl.store(out + to, result.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["num_spans"])
def join_kernel(
    contexts,
    query_starts,
    tiles,
    out,
    partial_sums,
    partial_totals,
    num_spans,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,
    WINDOW: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    LEAST: tl.constexpr,
    SPANS: tl.constexpr,
):
    """Join the spans of one row, SPANS at a time; programs are (row of the tile, KV head, tile)."""
    lane = tl.program_id(0)
    head = tl.program_id(1)
    item = tl.program_id(2)
    _, row, num_queries, start = _tile(item, tiles, contexts, query_starts, QUERIES)
    _, end, begin, length = _reach(start, num_queries, num_spans, WINDOW, KEYS, LEAST)
    query = lane // GROUP
    if query >= num_queries:
        return
    used = tl.cdiv(end - begin, length)
    column = tl.arange(0, PADDED)
    largest = NOTHING_YET
    total = 0.0
    summed = tl.zeros([PADDED], tl.float32)
    for start_span in range(0, used, SPANS):
        span = start_span + tl.arange(0, SPANS)
        is_used = span < used
        part = ((item * NUM_KV_HEADS + head) * num_spans + span).to(tl.int64) * (QUERIES * GROUP) + lane
        largest_there = tl.load(partial_totals + 2 * part, mask=is_used, other=NOTHING_YET)
        total_there = tl.load(partial_totals + 2 * part + 1, mask=is_used, other=0.0)
        there = is_used[:, None] & (column < HEAD_DIM)[None, :]
        sums = tl.load(partial_sums + part[:, None] * HEAD_DIM + column[None, :], mask=there, other=0.0)
        larger = tl.maximum(largest, tl.max(largest_there, 0))
        rescale = tl.exp2(largest - larger)
        weight = tl.exp2(largest_there - larger)
        total = total * rescale + tl.sum(total_there * weight, 0)
        summed = summed * rescale + tl.sum(sums * weight[:, None], 0)
        largest = larger
    result = summed / tl.where(total == 0.0, 1.0, total)
    to = (row + query).to(tl.int64) * (NUM_KV_HEADS * GROUP * HEAD_DIM) + (head * GROUP + lane % GROUP) * HEAD_DIM
    tl.store(out + to + column, result.to(out.dtype.element_ty), mask=column < HEAD_DIM)
