"""Every backend that runs on a CPU against dense attention in float64, written the slow and obvious way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionBackend, AttentionSetting, torch_gather
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.backend_choice import choose_attention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import step_tensors

HEADS, KV_HEADS, HEAD_DIM = 6, 2, 16
SCALE = 0.3
"""Another one than torch would take by itself."""

Backend = Callable[[torch.dtype], AttentionBackend]
DTYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""What each dtype may be off by."""


@pytest.fixture(params=["torch", "cpu"])
def backend(request: pytest.FixtureRequest) -> Backend:
    def selected(dtype: torch.dtype) -> AttentionBackend:
        return choose_attention(request.param, setting(dtype))[0]

    return selected


def setting(dtype: torch.dtype) -> AttentionSetting:
    return AttentionSetting(torch.device("cpu"), dtype, HEADS, KV_HEADS, HEAD_DIM, (4,))


@dataclass
class Text:
    """A request with the keys and values of all its tokens, [num_tokens, KV_HEADS, HEAD_DIM] each."""

    request: HandMadeRequest
    keys: Tensor
    values: Tensor


def group_of(block_size: int, window: int | None = None) -> GroupSpec:
    return GroupSpec(block_size) if window is None else GroupSpec(block_size, "sliding_window", window)


def deal(lengths: list[int], spec: GroupSpec, dtype: torch.dtype) -> tuple[list[Text], LayerKV]:
    """Texts with random keys and values, and a pool in which every slot is NaN."""
    block_size = spec.block_size
    dealer = Dealer(sum(-(-length // block_size) for length in lengths) + 3, [spec])
    texts = [
        Text(dealer.request([0] * length), *torch.randn(2, length, KV_HEADS, HEAD_DIM).to(dtype)) for length in lengths
    ]
    pool = torch.full((2, dealer.num_blocks, block_size, KV_HEADS, HEAD_DIM), torch.nan, dtype=dtype)
    return texts, LayerKV(pool[0], pool[1])


def run(
    backend: Backend, plan: StepPlan, texts: list[Text], queries: Tensor, cache: LayerKV, spec: GroupSpec
) -> Tensor:
    """Write the plan's KV and attend, as a layer does."""
    step = step_tensors(plan, [spec], torch.device("cpu"))
    attention = backend(queries.dtype).prepare(step, step.groups[0])
    entries = [(texts[entry.request_id], entry) for entry in plan.scheduled]
    keys = torch.cat([text.keys[entry.start : entry.end] for text, entry in entries])
    values = torch.cat([text.values[entry.start : entry.end] for text, entry in entries])
    attention.write(keys, values, cache)
    return attention.attend(queries, cache, SCALE)


def dense(plan: StepPlan, texts: list[Text], queries: Tensor, window: int | None = None) -> Tensor:
    """Token by token, head by head, in float64, from the texts' own keys and values."""
    rows, wide = [], iter(queries.double())
    for entry in plan.scheduled:
        text = texts[entry.request_id]
        for position in range(entry.start, entry.end):
            first = 0 if window is None else max(0, position - window + 1)
            keys, values = (t[first : position + 1].double() for t in (text.keys, text.values))
            heads = [
                (query @ keys[:, head * KV_HEADS // HEADS].T * SCALE).softmax(-1) @ values[:, head * KV_HEADS // HEADS]
                for head, query in enumerate(next(wide))
            ]
            rows.append(torch.stack(heads))
    return torch.stack(rows)


def largest_error(
    backend: Backend,
    chunks_of_steps: list[list[int]],
    lengths: list[int],
    spec: GroupSpec,
    dtype: torch.dtype = torch.float32,
) -> float:
    """Steps in which request i computes chunks[i] tokens (0: it sits out), in a pool full of NaN.

    What falls out of the window becomes NaN again.
    """
    torch.manual_seed(0)
    texts, cache = deal(lengths, spec, dtype)
    worst = 0.0
    for chunks in chunks_of_steps:
        dropped = [block for text in texts for block in text.request.dropped_blocks()]
        cache.keys[dropped], cache.values[dropped] = torch.nan, torch.nan
        plan = plan_of(*(text.request.take(chunk) for text, chunk in zip(texts, chunks, strict=True) if chunk))
        queries = torch.randn(plan.num_tokens, HEADS, HEAD_DIM).to(dtype)
        out = run(backend, plan, texts, queries, cache, spec)
        assert out.shape == queries.shape and out.dtype == dtype
        assert out.isfinite().all(), "max() below is blind to NaN"
        worst = max(worst, (out.double() - dense(plan, texts, queries, spec.window)).abs().max().item())
    return worst


LENGTHS = [40, 9, 23, 2]
STEPS = [[17, 5, 0, 0], [8, 1, 22, 1], [1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], [13, 0, 0, 0]]


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 16, 256])
def test_mixed_steps_equal_dense_attention(backend: Backend, block_size: int) -> None:
    assert largest_error(backend, STEPS, LENGTHS, group_of(block_size)) < 1e-5


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("window", [1, 2, 4, 5, 8, 22, 40, 100])
def test_windows_equal_dense_attention(backend: Backend, window: int, block_size: int) -> None:
    assert largest_error(backend, STEPS, LENGTHS, group_of(block_size, window)) < 1e-5


@pytest.mark.parametrize("window", [None, 3, 8])
def test_long_chunks_are_cut_into_tiles(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_gather, "TILE_QUERIES", 5)

    def backend(dtype: torch.dtype) -> AttentionBackend:
        return TorchGather(setting(dtype))

    assert largest_error(backend, STEPS, LENGTHS, group_of(4, window)) < 1e-5


def test_bfloat16(backend: Backend) -> None:
    for window in (None, 8):
        assert largest_error(backend, STEPS, LENGTHS, group_of(4, window), torch.bfloat16) < 2e-2


def test_equal_prompts_in_one_batch(backend: Backend) -> None:
    assert largest_error(backend, [[8, 8, 8], [1, 1, 1]], [12, 9, 10], group_of(4)) < 1e-5


def test_decodes_gather_their_windows_only() -> None:
    """Whatever the contexts are, a decode reads at most `window` slots."""
    dealer = Dealer(100, [group_of(4, 8)])
    requests = [dealer.request([0] * length) for length in (90, 30, 4)]
    for request in requests:
        request.num_computed = len(request.token_ids) - 1
    step = step_tensors(plan_of(*(request.take(1) for request in requests)), [group_of(4, 8)], torch.device("cpu"))
    (batch,) = TorchGather(setting(torch.float32)).prepare(step, step.groups[0])._batches
    assert batch.slots.shape == (3, 8)
    assert batch.mask.sum(-1).flatten().tolist() == [8, 8, 4]


def test_only_the_plans_slots_are_written(backend: Backend) -> None:
    texts, cache = deal([6, 6], group_of(4), torch.float32)
    plan = plan_of(texts[0].request.take(5), texts[1].request.take(2))
    run(backend, plan, texts, torch.randn(7, HEADS, HEAD_DIM), cache, group_of(4))
    slots = {block * 4 + offset + i for e in plan.scheduled for block, offset, n in e.slot_runs[0] for i in range(n)}
    for pool in (cache.keys, cache.values):
        written = pool.flatten(0, 1).isfinite().all(dim=-1).all(dim=-1)
        assert set(written.nonzero().flatten().tolist()) == slots


def test_the_table_decides_what_is_read(backend: Backend) -> None:
    """A table that points at another request's blocks reads that request's KV, just as a broken engine would."""
    texts, cache = deal([8, 8], group_of(4), torch.float32)
    own, other = (text.request for text in texts)
    run(backend, plan_of(own.take(7), other.take(7)), texts, torch.randn(14, HEADS, HEAD_DIM), cache, group_of(4))
    queries = torch.randn(1, HEADS, HEAD_DIM)
    own.tables = ((other.table[0], own.table[1]),)
    out = run(backend, plan := plan_of(own.take(1)), texts, queries, cache, group_of(4))
    texts[0].keys[:4], texts[0].values[:4] = texts[1].keys[:4], texts[1].values[:4]
    assert torch.allclose(out.double(), dense(plan, texts, queries), atol=1e-5)
