"""The attention kernel against dense attention in float64, written the slow and obvious way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from torch import Tensor

from engine.native.one_op import run_op
from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.native.layout import OpKind
from labengine.engine.step_tensors import StepTensors, first_read, row_ranges, step_tensors
from sampling import sampled

FLOAT, BF16 = torch.float32, torch.bfloat16
TOLERANCES = {FLOAT: 5e-6, BF16: 1e-2}


@dataclass(frozen=True)
class Heads:
    """The heads of a layer, and what its queries are scaled by."""

    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 64

    @property
    def group_size(self) -> int:
        return self.num_heads // self.num_kv_heads

    @property
    def width(self) -> int:
        """Of a row of queries, keys and values."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


class Case:
    """Requests in a pool of NaN, in which the KV of all tokens computed so far is written, and nothing else."""

    def __init__(self, heads: Heads, lengths: list[int], spec: GroupSpec, dtype: torch.dtype = FLOAT) -> None:
        torch.manual_seed(0)
        self.heads, self.spec, self.dtype = heads, spec, dtype
        dealer = Dealer(sum(-(-length // spec.block_size) for length in lengths) + 3, [spec])
        self.requests = [dealer.request([0] * length) for length in lengths]
        shape = (dealer.num_blocks * spec.block_size, heads.num_kv_heads, heads.head_dim)
        self.keys, self.values = (torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))

    def plan(self, chunks: list[int]) -> StepPlan:
        """Compute so many tokens of each request; their KV is there, what fell out of the window is NaN."""
        for request in self.requests:
            for block in request.dropped_blocks():
                size = self.spec.block_size
                self.keys[block * size : block * size + size] = torch.nan
                self.values[block * size : block * size + size] = torch.nan
        entries = [(r, r.num_computed, r.take(n)) for r, n in zip(self.requests, chunks, strict=True) if n]
        for request, start, entry in entries:
            slots = self.slots(request, start, entry.end)
            self.keys[slots], self.values[slots] = (
                torch.randn(len(slots), *self.keys.shape[1:]).to(self.dtype) for _ in range(2)
            )
        return plan_of(*(entry for _, _, entry in entries))

    def slots(self, request: HandMadeRequest, first: int, end: int) -> list[int]:
        size = self.spec.block_size
        return [request.table[p // size] * size + p % size for p in range(first, end)]

    def attend(self, step: StepTensors, heads_of_rows: Tensor, num_threads: int = 1) -> Tensor:
        """What the kernel makes of rows of queries, keys and values."""
        heads = self.heads
        out = torch.full((step.num_tokens, heads.num_heads * heads.head_dim), torch.nan, dtype=self.dtype)
        run_op(
            OpKind.ATTEND,
            step,
            {"in_": heads_of_rows, "out": out},
            num_threads=num_threads,
            scale=heads.head_dim**-0.5,
            keys=self.keys,
            values=self.values,
            num_heads=heads.num_heads,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            block_size=self.spec.block_size,
            window=self.spec.window or 0,
        )
        return out.view(-1, heads.num_heads, heads.head_dim)

    def dense(self, step: StepTensors, request_ids: list[int], queries: Tensor) -> Tensor:
        """In float64, token by token."""
        out = torch.zeros_like(queries, dtype=torch.float64)
        for request_id, (row, end), context in zip(request_ids, row_ranges(step), step.context_lens, strict=True):
            for at in range(row, end):
                position = context - end + at
                slots = self.slots(self.requests[request_id], first_read(position, self.spec.window), position + 1)
                keys, values = (
                    pool[slots].double().repeat_interleave(self.heads.group_size, dim=1)
                    for pool in (self.keys, self.values)
                )
                scores = torch.einsum("hd,phd->hp", queries[at].double(), keys) * self.heads.head_dim**-0.5
                out[at] = torch.einsum("hp,phd->hd", scores.softmax(-1), values)
        return out

    def check(self, chunks: list[int], num_threads: int = 1) -> None:
        plan = self.plan(chunks)
        step = step_tensors(plan, [self.spec], torch.device("cpu"))
        rows = 2 * torch.randn(step.num_tokens, self.heads.width).to(self.dtype)
        out = self.attend(step, rows, num_threads)
        queries = rows[:, : self.heads.num_heads * self.heads.head_dim].view_as(out)
        expected = self.dense(step, [entry.request_id for entry in plan.scheduled], queries)
        torch.testing.assert_close(
            out.double(), expected, atol=TOLERANCES[self.dtype], rtol=TOLERANCES[self.dtype], check_dtype=False
        )


def group_of(block_size: int, window: int | None = None) -> GroupSpec:
    return GroupSpec(block_size) if window is None else GroupSpec(block_size, "sliding_window", window)


LENGTHS = [40, 9, 23, 2]
STEPS = [[17, 5, 0, 0], [8, 1, 22, 1], [1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], [13, 0, 0, 0]]
DTYPES = pytest.mark.parametrize("dtype", [FLOAT, BF16], ids=["float32", "bf16"])


@DTYPES
@pytest.mark.parametrize("block_size", [1, 3, 16])
@pytest.mark.parametrize("window", [None, 1, 5, 22])
def test_mixed_steps(block_size: int, window: int | None, dtype: torch.dtype) -> None:
    case = Case(Heads(), LENGTHS, group_of(block_size, window), dtype)
    for chunks in STEPS:
        case.check(chunks)


@DTYPES
@pytest.mark.parametrize("head_dim", [8, 40, 64, 128, 256])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (9, 3), (8, 2), (5, 1)])
def test_shapes_of_heads(num_heads: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    case = Case(Heads(num_heads, num_kv_heads, head_dim), [60, 31], group_of(16), dtype)
    for chunks in ([50, 20], [9, 10], [1, 1]):
        case.check(chunks)


LONG_TEXTS = {(1, None), (2, 100), (5, 200), (1, 350), (5, None)}
"""Each number of threads and each window; without a window one thread and several."""


@DTYPES
@pytest.mark.parametrize(("num_threads", "window"), sampled(product([1, 2, 5], [None, 100, 200, 350]), LONG_TEXTS))
def test_long_texts(num_threads: int, window: int | None, dtype: torch.dtype) -> None:
    """Longer than any tile: chunks behind chunks, a short chunk behind a long text, decodes."""
    case = Case(Heads(3, 1, 64), [700, 300], group_of(16, window), dtype)
    for chunks in ([400, 0], [250, 280], [7, 3], [1, 1], [1, 0]):
        case.check(chunks, num_threads)


@pytest.mark.parametrize("num_threads", [1, 4])
@pytest.mark.parametrize("length", [255, 256, 257, 3000])
@DTYPES
def test_few_long_decodes_are_split(length: int, num_threads: int, dtype: torch.dtype) -> None:
    case = Case(Heads(3, 1, 64), [length, 40], group_of(16), dtype)
    case.requests[0].num_computed, case.requests[1].num_computed = length - 1, 39
    for request in case.requests:
        slots = case.slots(request, 0, request.num_computed)
        for pool in (case.keys, case.values):
            pool[slots] = torch.randn(len(slots), 1, 64).to(dtype)
    case.check([1, 1], num_threads)


@DTYPES
@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("loud", [0, 200, 256, 500, 640])
def test_the_maximum_is_that_of_all_parts(loud: int, chunk: int, dtype: torch.dtype) -> None:
    """Keys that score so much higher than all others that no other part's maximum could replace theirs."""
    case = Case(Heads(3, 1, 64), [700], group_of(16), dtype)
    case.plan([700 - chunk])
    plan, (request,) = case.plan([chunk]), case.requests
    case.keys[case.slots(request, 0, 700)] *= 0.01
    case.keys[case.slots(request, loud, loud + 20)] = 4.0
    step = step_tensors(plan, [case.spec], torch.device("cpu"))
    rows = torch.full((chunk, case.heads.width), 20.0).to(dtype)
    expected = case.dense(step, [0], rows[:, : 3 * 64].view(-1, 3, 64))
    for num_threads in (1, 2):
        out = case.attend(step, rows, num_threads).double()
        torch.testing.assert_close(out, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


def test_many_decodes() -> None:
    case = Case(Heads(9, 3, 64), [2 + i % 37 for i in range(100)], group_of(4))
    case.check([1 + i % 37 for i in range(100)], 2)
    case.check([1] * 100, 2)


def padded(step: StepTensors) -> StepTensors:
    """The step with a request behind it that has one row, and no context."""
    (group,) = step.groups
    behind = torch.zeros(1, group.block_tables.shape[1], dtype=torch.int32)
    return replace(
        step,
        token_ids=torch.cat([step.token_ids, torch.zeros(1, dtype=torch.int32)]),
        query_lens=(*step.query_lens, 1),
        context_lens=(*step.context_lens, 0),
        query_starts=torch.cat([step.query_starts, step.query_starts[-1:] + 1]),
        contexts=torch.cat([step.contexts, torch.zeros(1, dtype=torch.int32)]),
        groups=(replace(group, block_tables=torch.cat([group.block_tables, behind - 1])),),
    )


@DTYPES
@pytest.mark.parametrize("window", [None, 3])
def test_padding_attends_to_zeros(window: int | None, dtype: torch.dtype) -> None:
    case = Case(Heads(), [30, 12], group_of(4, window), dtype)
    for chunks in ([20, 11], [1, 1]):
        step = padded(step_tensors(case.plan(chunks), [case.spec], torch.device("cpu")))
        out = case.attend(step, torch.randn(step.num_tokens, case.heads.width).to(dtype))
        assert out[:-1].isfinite().all()
        assert (out[-1] == 0).all()


@DTYPES
@pytest.mark.parametrize("chunk", [1, 30])
def test_large_scores_neither_overflow_nor_hide(chunk: int, dtype: torch.dtype) -> None:
    """The largest score takes all the weight, however large; where all are alike and very small, so are the weights."""
    case = Case(Heads(1, 1, 16), [chunk], group_of(4), dtype)
    step = step_tensors(case.plan([chunk]), [case.spec], torch.device("cpu"))
    slots = case.slots(case.requests[0], 0, chunk)
    case.keys[slots], case.values[slots] = -1.0, torch.arange(chunk).view(-1, 1, 1).to(dtype)
    rows = torch.full((chunk, case.heads.width), 3000.0).to(dtype)
    out = case.attend(step, rows)[:, 0, 0].double()
    torch.testing.assert_close(out, torch.arange(chunk).double() / 2, atol=0, rtol=1e-2)
    case.keys[slots[0]] = 1.0
    assert (case.attend(step, rows) == 0).all()


@DTYPES
@pytest.mark.parametrize("chunk", [1, 30])
def test_nan_is_not_hidden(chunk: int, dtype: torch.dtype) -> None:
    """A key that is not a number makes every query that reads it not a number, so that the engine can detect it."""
    case = Case(Heads(), [40], group_of(4), dtype)
    case.plan([20])
    case.keys[case.slots(case.requests[0], 0, 1)] = torch.nan
    step = step_tensors(case.plan([chunk]), [case.spec], torch.device("cpu"))
    out = case.attend(step, torch.randn(step.num_tokens, case.heads.width).to(dtype))
    assert out.isnan().all()


@DTYPES
@pytest.mark.parametrize("window", [None, 130, 512])
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_neither_threads_nor_company_change_a_bit(num_kv_heads: int, window: int | None, dtype: torch.dtype) -> None:
    """However attention is shared out: prompts, chunks behind them, decodes; with all the others, and each alone."""
    case = Case(Heads(6, num_kv_heads), [700, 950, 300, 150], group_of(16, window), dtype)
    for chunks in ([700, 150, 300, 149], [0, 200, 0, 1], [0, 599, 0, 0], [0, 1, 0, 0]):
        plan = case.plan(chunks)
        step = step_tensors(plan, [case.spec], torch.device("cpu"))
        rows = torch.randn(step.num_tokens, case.heads.width).to(dtype)
        together = case.attend(step, rows)
        assert together.isfinite().all()
        for num_threads in (1, 2, 5):
            assert torch.equal(case.attend(step, rows, num_threads), together)
            for entry, (begin, end) in zip(plan.scheduled, row_ranges(step), strict=True):
                alone = step_tensors(plan_of(entry), [case.spec], torch.device("cpu"))
                assert torch.equal(case.attend(alone, rows[begin:end], num_threads), together[begin:end])
