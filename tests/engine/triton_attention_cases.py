"""The Triton backend against dense attention in float64. Run by test_triton.py, interpreted or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import torch
from torch import Tensor

from engine.far_memory import MAX_BYTES, far_cache, first_block, move
from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from engine.triton_device import DEVICE
from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.triton import SPANS_AT_ONCE, TritonAttention, TritonStep, try_kernels
from labengine.engine.attention.triton_tiles import Gpu, TileShape, num_spans
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import StepTensors, step_tensors
from labengine.engine.trial_launch import launch_refusal
from sampling import sampled

TOLERANCES = {torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
"""Tolerance of the error's norm, relative to the expected result's norm."""
BUSY, IDLE = Gpu((8, 0), 1), Gpu((8, 0), 4096)
"""GPUs on which few programs are enough, and on which keys are cut into as many spans as they can be."""
SMALL_DECODE, SMALL_PREFILL = TileShape(16, 16, 4, 2, 1, min_steps=1), TileShape(16, 16, 4, 2, 1, min_steps=1)


class Heads(NamedTuple):
    queries: int
    keys: int
    dim: int

    def __str__(self) -> str:
        return f"{self.queries}x{self.keys}x{self.dim}"


HEADS = [Heads(6, 2, 16), Heads(4, 4, 64), Heads(14, 2, 64), Heads(4, 2, 128), Heads(4, 1, 256), Heads(3, 3, 80)]


@dataclass
class Texts:
    """Requests with the keys and values of all their tokens, and a pool in which every slot is NaN until written."""

    spec: GroupSpec
    heads: Heads
    requests: list[HandMadeRequest]
    keys: list[Tensor]
    values: list[Tensor]
    cache: LayerKV

    @classmethod
    def deal(cls, lengths: list[int], spec: GroupSpec, heads: Heads, dtype: torch.dtype) -> Texts:
        torch.manual_seed(0)
        dealer = Dealer(sum(-(-length // spec.block_size) for length in lengths) + 3, [spec])
        pool = torch.full((2, dealer.num_blocks, spec.block_size, heads.keys, heads.dim), torch.nan, dtype=dtype)
        keys, values = ([torch.randn(n, heads.keys, heads.dim).to(dtype) for n in lengths] for _ in range(2))
        requests = [dealer.request([0] * length) for length in lengths]
        return cls(spec, heads, requests, keys, values, LayerKV(*pool.to(DEVICE)))

    def take(self, chunks: list[int]) -> StepPlan:
        """A step; 0: the request sits out. What has fallen out of windows is NaN again, before it."""
        dropped = [block for request in self.requests for block in request.dropped_blocks()]
        self.cache.keys[dropped], self.cache.values[dropped] = torch.nan, torch.nan
        return plan_of(*(r.take(chunk) for r, chunk in zip(self.requests, chunks, strict=True) if chunk))

    def new_kv(self, plan: StepPlan) -> Tensor:
        """[num_tokens, 2 * heads, dim]: keys and values as slices of a qkv matrix."""
        parts = [
            torch.cat((self.keys[e.request_id][e.start : e.end], self.values[e.request_id][e.start : e.end]), 1)
            for e in plan.scheduled
        ]
        return torch.cat(parts).to(DEVICE)

    def expected(self, plan: StepPlan, queries: Tensor, scale: float) -> Tensor:
        """Dense, in float64."""
        rows, group = iter(queries.cpu().double()), self.heads.queries // self.heads.keys
        out = []
        for entry in plan.scheduled:
            for position in range(entry.start, entry.end):
                first = 0 if self.spec.window is None else max(0, position - self.spec.window + 1)
                keys, values = (
                    kv[entry.request_id][first : position + 1].double().repeat_interleave(group, 1)
                    for kv in (self.keys, self.values)
                )
                weights = (torch.einsum("hd,khd->hk", next(rows), keys) * scale).softmax(-1)
                out.append(torch.einsum("hk,khd->hd", weights, values))
        return torch.stack(out)


def backend_for(texts: Texts, gpu: Gpu = BUSY, *, small: bool = False) -> TritonAttention:
    heads, dtype = texts.heads, texts.cache.keys.dtype
    setting = AttentionSetting(DEVICE, dtype, heads.queries, heads.keys, heads.dim, (texts.spec.block_size,))
    assert TritonAttention.refusal(setting) is None
    backend = TritonAttention(setting, gpu)
    if small:
        backend.decode_shape, backend.prefill_shape = SMALL_DECODE, SMALL_PREFILL
    return backend


def largest_error(texts: Texts, backend: TritonAttention, steps: list[list[int]]) -> float:
    """The error relative to the expected result; NaN if a forbidden slot was read."""
    worst = 0.0
    for chunks in steps:
        plan = texts.take(chunks)
        step = step_tensors(plan, [texts.spec], DEVICE)
        attention = backend.prepare(step, step.groups[0])
        new = texts.new_kv(plan)
        attention.write(new[:, : texts.heads.keys], new[:, texts.heads.keys :], texts.cache)
        queries = torch.randn(plan.num_tokens, *texts.heads[::2]).to(new.dtype).to(DEVICE)
        out = attention.attend(queries, texts.cache, 0.3)
        assert out.shape == queries.shape and out.dtype == queries.dtype
        expected = texts.expected(plan, queries, 0.3)
        error = ((out.cpu().double() - expected).norm() / expected.norm()).item()
        if not error <= worst:
            worst = error
    return worst


def group_of(block_size: int, window: int | None = None) -> GroupSpec:
    return GroupSpec(block_size) if window is None else GroupSpec(block_size, "sliding_window", window)


LENGTHS = [52, 9, 22, 2]
STEPS = [[19, 5, 0, 0], [4, 1, 21, 1], [1, 1, 1, 1], [28, 1, 0, 0]]


MIXED = {(256, 33)}
"""Blocks larger than a tile, with the longest window."""


@pytest.mark.parametrize(("block_size", "window"), sampled(product([1, 3, 16, 256], [None, 1, 5, 33]), MIXED))
def test_mixed_steps(block_size: int, window: int | None) -> None:
    texts = Texts.deal(LENGTHS, group_of(block_size, window), HEADS[0], torch.float32)
    assert largest_error(texts, backend_for(texts, small=True), STEPS) < TOLERANCES[torch.float32]


@pytest.mark.parametrize(("block_size", "window"), sampled(product([3, 16], [None, 20]), {(3, 20)}))
def test_few_tiles_are_cut_into_spans(block_size: int, window: int | None) -> None:
    """Chunks and decodes; some requests read too little for all of the spans."""
    texts = Texts.deal([40, 9], group_of(block_size, window), Heads(3, 1, 16), torch.float32)
    backend = backend_for(texts, IDLE, small=True)
    steps = [[32, 0], [6, 8], [1, 1], [1, 0]]
    assert largest_error(texts, backend, steps) < TOLERANCES[torch.float32]


TILES = {(HEADS[0], torch.float32)}
"""The smallest heads, in full precision."""


@pytest.mark.parametrize(("heads", "dtype"), sampled(product(HEADS, TOLERANCES), TILES), ids=str)
def test_tiles_as_they_are(heads: Heads, dtype: torch.dtype) -> None:
    """Of every shape of heads; the last two steps, decodes of a context longer than one span, are cut into spans."""
    texts = Texts.deal([270, 40], group_of(16), heads, dtype)
    prefilling, decoding = backend_for(texts, BUSY), backend_for(texts, IDLE)
    assert largest_error(texts, prefilling, [[134, 39], [134, 1]]) < TOLERANCES[dtype]
    assert num_spans(IDLE, decoding.decode_shape, heads.keys, 269) > 1
    assert largest_error(texts, decoding, [[1, 0], [1, 0]]) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", [pytest.param(torch.float16, marks=pytest.mark.sweep), torch.bfloat16], ids=str)
def test_windows_in_tiles_as_they_are(dtype: torch.dtype) -> None:
    texts = Texts.deal([301, 40], group_of(16, 100), HEADS[3], dtype)
    assert largest_error(texts, backend_for(texts), [[150, 39], [150, 1], [1, 0]]) < TOLERANCES[dtype]


@pytest.mark.sweep
def test_more_spans_than_are_joined_at_once() -> None:
    texts = Texts.deal([600], group_of(16), Heads(1, 1, 16), torch.float32)
    prefilling, decoding = backend_for(texts, BUSY), backend_for(texts, IDLE, small=True)
    assert largest_error(texts, prefilling, [[599]]) < TOLERANCES[torch.float32]
    assert num_spans(IDLE, SMALL_DECODE, 1, 600) > SPANS_AT_ONCE
    assert largest_error(texts, decoding, [[1]]) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("gpu", [BUSY, IDLE], ids=["whole", "spans"])
def test_padding_of_a_graph(gpu: Gpu) -> None:
    """Rows without slot and context attend to zeros and write nowhere; tables are wider than anybody needs."""
    texts = Texts.deal([38, 3], group_of(4), HEADS[0], torch.float32)
    backend = backend_for(texts, gpu, small=True)
    assert largest_error(texts, backend_for(texts, BUSY, small=True), [[37, 2]]) < 1e-5
    plan = texts.take([1, 1])
    step = padded(step_tensors(plan, [texts.spec], DEVICE), rows=5, width=20)
    attention = backend.prepare(step, step.groups[0])
    new = torch.full((5, 4, 16), torch.nan, device=DEVICE)
    new[:2] = texts.new_kv(plan)
    before = texts.cache.keys.isfinite().sum() + texts.cache.values.isfinite().sum()
    attention.write(new[:, :2], new[:, 2:], texts.cache)
    assert texts.cache.keys.isfinite().sum() + texts.cache.values.isfinite().sum() == before + 2 * 2 * 2 * 16
    queries = torch.randn(5, 6, 16).to(DEVICE)
    out = attention.attend(queries, texts.cache, 0.3)
    assert torch.allclose(out[:2].cpu().double(), texts.expected(plan, queries[:2], 0.3), atol=1e-5)
    assert not out[2:].any()


def padded(step: StepTensors, rows: int, width: int) -> StepTensors:
    """As a graph's bucket of `rows` has it: whatever lies behind is garbage, but for slots and contexts."""
    (group,), extra = step.groups, rows - step.num_requests

    def grown(tensor: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, extra), value=value)

    tables = torch.full((rows, width), -7, dtype=torch.int32, device=DEVICE)
    tables[: step.num_requests, : group.block_tables.shape[1]] = group.block_tables
    return replace(
        step,
        token_ids=grown(step.token_ids, 0),
        positions=grown(step.positions, 0),
        query_lens=(1,) * rows,
        context_lens=(0,) * rows,
        query_starts=torch.arange(rows + 1, dtype=torch.int32, device=DEVICE),
        contexts=grown(step.contexts, 0),
        groups=(replace(group, slots=grown(group.slots, -1), block_tables=tables),),
    )


def test_only_the_plans_slots_are_written() -> None:
    texts = Texts.deal([6, 6], group_of(4), HEADS[0], torch.float32)
    plan = texts.take([5, 2])
    step = step_tensors(plan, [texts.spec], DEVICE)
    new = texts.new_kv(plan)
    backend_for(texts).prepare(step, step.groups[0]).write(new[:, :2], new[:, 2:], texts.cache)
    slots = step.groups[0].slots.tolist()
    for pool, rows in ((texts.cache.keys, new[:, :2]), (texts.cache.values, new[:, 2:])):
        flat = pool.view(-1, 2, 16)
        assert torch.equal(flat[slots], rows)
        assert flat.isfinite().all(-1).all(-1).nonzero().flatten().tolist() == sorted(slots)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_writing_copies_every_bit(dtype: torch.dtype) -> None:
    texts = Texts.deal([50], group_of(3), Heads(3, 3, 80), dtype)
    plan = texts.take([50])
    step = step_tensors(plan, [texts.spec], DEVICE)
    new = texts.new_kv(plan)
    backend_for(texts).prepare(step, step.groups[0]).write(
        new[:, :3], new[:, 3:].transpose(0, 1).contiguous().transpose(0, 1), texts.cache
    )
    slots = step.groups[0].slots.long()
    assert torch.equal(texts.cache.keys.view(-1, 3, 80)[slots], new[:, :3])
    assert torch.equal(texts.cache.values.view(-1, 3, 80)[slots], new[:, 3:])


def test_queries_may_be_a_slice_of_qkv() -> None:
    texts = Texts.deal([40], group_of(4), HEADS[0], torch.float32)
    backend = backend_for(texts)
    assert largest_error(texts, backend, [[30]]) < 1e-5
    plan = texts.take([10])
    step = step_tensors(plan, [texts.spec], DEVICE)
    attention = backend.prepare(step, step.groups[0])
    assert isinstance(attention, TritonStep)
    qkv = torch.cat((torch.randn(10, 6, 16).to(DEVICE), texts.new_kv(plan)), 1)
    queries, keys, values = qkv.split((6, 2, 2), dim=1)
    attention.write(keys, values, texts.cache)
    out = attention.attend(queries, texts.cache, 0.3)
    assert torch.allclose(out.cpu().double(), texts.expected(plan, queries, 0.3), atol=1e-5)


def test_the_table_decides_what_is_read() -> None:
    """A table that points at another request's blocks reads that request's KV, just as a broken engine would."""
    texts = Texts.deal([8, 8], group_of(4), HEADS[0], torch.float32)
    backend = backend_for(texts)
    assert largest_error(texts, backend, [[7, 7]]) < 1e-5
    own, other = texts.requests
    own.tables = ((other.table[0], own.table[1]),)
    texts.keys[0][:4], texts.values[0][:4] = texts.keys[1][:4], texts.values[1][:4]
    assert largest_error(texts, backend, [[1, 0]]) < 1e-5


@pytest.mark.parametrize(("block_size", "gpu"), [(4, IDLE), (16, BUSY)], ids=["small blocks, spans", "blocks, whole"])
def test_kv_behind_2_to_the_31_elements(block_size: int, gpu: Gpu, tmp_path: Path) -> None:
    """A step's keys are found through several entries of a table, or through one."""
    texts = Texts.deal([26, 10], group_of(block_size), Heads(2, 1, 64), torch.float16)
    num_blocks, *block = texts.cache.keys.shape
    before = psutil.Process().memory_info().rss
    if DEVICE.type == "cpu":
        texts.cache = far_cache(tmp_path, tuple(block), num_blocks, torch.float16)
    else:
        shape = (first_block(tuple(block)) + num_blocks, *block)
        texts.cache = LayerKV(*(torch.zeros(shape, dtype=torch.float16, device=DEVICE) for _ in range(2)))
    move(texts.requests, first_block(tuple(block)))
    assert largest_error(texts, backend_for(texts, gpu, small=True), [[25, 9], [1, 1]]) < TOLERANCES[torch.float16]
    if DEVICE.type == "cpu":  # else the pool is the GPU's memory; CUDA and Triton's compiler need more of the host's
        assert psutil.Process().memory_info().rss - before < MAX_BYTES


@pytest.mark.parametrize(("loud",), sampled([(None,), (0,), (150,), (592,)], [(150,)]))
def test_the_joins_maximum_is_that_of_all_spans(loud: int | None) -> None:
    """Keys that score so much higher than all others that no other span's maximum could replace theirs; or none."""
    texts = Texts.deal([600], group_of(16), Heads(1, 1, 16), torch.float32)
    (request,), (keys,), (values,) = texts.requests, texts.keys, texts.values
    keys *= 0.01
    if loud is not None:
        keys[loud : loud + 8] = 1.0
    request.num_computed = 599
    slots = [request.table[p // 16] * 16 + p % 16 for p in range(600)]
    for pool, kept in ((texts.cache.keys, keys), (texts.cache.values, values)):
        pool.view(-1, 1, 16)[slots] = kept.to(DEVICE)
    plan, queries = texts.take([1]), torch.full((1, 1, 16), 30.0, device=DEVICE)
    step = step_tensors(plan, [texts.spec], DEVICE)
    assert num_spans(IDLE, SMALL_DECODE, 1, 600) > SPANS_AT_ONCE
    attention = backend_for(texts, IDLE, small=True).prepare(step, step.groups[0])
    out = attention.attend(queries, texts.cache, 1.0).cpu().double()
    torch.testing.assert_close(out, texts.expected(plan, queries, 1.0), atol=1e-5, rtol=1e-5)


SETTINGS = [
    (torch.float32, (16,), (None,)),
    (torch.float32, (1, 16, 512), (None, 5)),
    (torch.float16, (1, 16, 512), (None, 5)),
]


@pytest.mark.parametrize(("dtype", "block_sizes", "windows"), sampled(SETTINGS, SETTINGS[:1]), ids=str)
def test_the_trial_launch_passes_here(
    dtype: torch.dtype, block_sizes: tuple[int, ...], windows: tuple[int | None, ...]
) -> None:
    setting = AttentionSetting(DEVICE, dtype, 4, 2, 16, block_sizes, windows)
    assert launch_refusal(DEVICE, lambda: try_kernels(TritonAttention(setting))) is None
