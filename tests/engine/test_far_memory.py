"""KV behind 2**31 elements is written and read like any other: attention there and at the pool's start is equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor

from engine.far_memory import MAX_BYTES, far_cache, first_block, move
from engine.native.one_op import run_op
from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine.config import GroupSpec
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.flash_attn import torch_store
from labengine.engine.backend_choice import choose_attention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.native.layout import OpKind
from labengine.engine.step_tensors import step_tensors

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
SPEC, DTYPE, CPU = GroupSpec(16), torch.bfloat16, torch.device("cpu")
BLOCK, NUM_BLOCKS = (16, KV_HEADS, HEAD_DIM), 60
CHUNKS = [[599, 30], [1, 9], [1, 1]]
"""Prompts; a long decode, which is read in parts, beside a chunk; decodes."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    before = psutil.Process().memory_info().rss
    yield
    assert psutil.Process().memory_info().rss - before < MAX_BYTES


@pytest.fixture
def caches(tmp_path: Path) -> tuple[LayerKV, LayerKV]:
    """A small pool, and one with as many blocks behind the 2**31st element."""
    near = torch.zeros(2, NUM_BLOCKS, *BLOCK, dtype=DTYPE)
    return LayerKV(*near), far_cache(tmp_path, BLOCK, NUM_BLOCKS, DTYPE)


def requests() -> list[HandMadeRequest]:
    dealer = Dealer(NUM_BLOCKS, [SPEC])
    return [dealer.request([0] * length) for length in (601, 40)]


def results(name: str, cache: LayerKV, by: int) -> Iterator[Tensor]:
    """What attention gives in steps of random rows, whose KV is kept in blocks that lie `by` higher."""
    torch.manual_seed(0)
    backend, _ = choose_attention(name, AttentionSetting(CPU, DTYPE, HEADS, KV_HEADS, HEAD_DIM, (16,)))
    texts = requests()
    move(texts, by)
    for chunks in CHUNKS:
        plan = plan_of(*(text.take(chunk) for text, chunk in zip(texts, chunks, strict=True)))
        step = step_tensors(plan, [SPEC], CPU)
        rows = torch.randn(plan.num_tokens, HEADS + 2 * KV_HEADS, HEAD_DIM).to(DTYPE)
        queries, keys, values = (part.contiguous() for part in rows.split((HEADS, KV_HEADS, KV_HEADS), dim=1))
        attention = backend.prepare(step, step.groups[0])
        attention.write(keys, values, cache)
        yield attention.attend(queries, cache, 0.3)


@pytest.mark.parametrize("name", ["cpu", "torch"])
def test_attention(name: str, caches: tuple[LayerKV, LayerKV]) -> None:
    near, far = caches
    expected = list(results(name, near, 0))
    for here, there in zip(expected, results(name, far, first_block(BLOCK)), strict=True):
        assert here.isfinite().all() and torch.equal(here, there)
    assert_same_blocks(near, far)


def assert_same_blocks(near: LayerKV, far: LayerKV) -> None:
    for here, there in ((near.keys, far.keys), (near.values, far.values)):
        assert here.any() and torch.equal(here, there[first_block(BLOCK) :])


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_native_rotation_writes_there(num_threads: int, caches: tuple[LayerKV, LayerKV]) -> None:
    """As it turns keys, it puts them and the values into their slots."""
    rows = torch.randn(40, HEADS + 2 * KV_HEADS, HEAD_DIM).to(DTYPE)
    for cache, by in zip(caches, (0, first_block(BLOCK)), strict=True):
        (_, text) = texts = requests()
        move(texts, by)
        buffers = {"in_": rows.clone(), "other": torch.ones(40, HEAD_DIM)}
        heads = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "block_size": 16}
        step = step_tensors(plan_of(text.take(40)), [SPEC], CPU)
        run_op(OpKind.ROTATE, step, buffers, num_threads=num_threads, keys=cache.keys, values=cache.values, **heads)
    assert_same_blocks(*caches)


def test_the_store_of_other_backends_writes_there(caches: tuple[LayerKV, LayerKV]) -> None:
    keys, values = torch.randn(2, 41, KV_HEADS, HEAD_DIM).to(DTYPE)
    for cache, by in zip(caches, (0, first_block(BLOCK)), strict=True):
        (_, text) = texts = requests()
        move(texts, by)
        slots = step_tensors(plan_of(text.take(40)), [SPEC], CPU).groups[0].slots
        torch_store(keys, values, cache, torch.nn.functional.pad(slots, (0, 1), value=-1))
    assert_same_blocks(*caches)
