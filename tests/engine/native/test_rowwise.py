"""The kernels that go row by row against the torch modules whose work they do."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from engine.native.one_op import run_op
from engine.plan_builder import Dealer, plan_of
from engine.test_rope import FAR, far_rotation
from labengine.config import GroupSpec
from labengine.engine.mapped_memory import MappedMemory
from labengine.engine.modules import Embedding, OffsetRMSNorm, RMSNorm, ScaledEmbedding
from labengine.engine.native.layout import OpKind
from labengine.engine.native.library import packed
from labengine.engine.rope import RopeSpec, Rotation
from labengine.engine.step_tensors import StepTensors, step_tensors

Part = TypeVar("Part", bound=torch.nn.Module)
FLOAT, BF16 = torch.float32, torch.bfloat16
DTYPES = pytest.mark.parametrize("dtype", [FLOAT, BF16], ids=["float32", "bf16"])
SIZES = pytest.mark.parametrize("size", [1, 7, 16, 33, 576])
NORMS = pytest.mark.parametrize("norm_type", [RMSNorm, OffsetRMSNorm])


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def step_of(*chunks: int) -> StepTensors:
    """Requests that compute so many tokens, the odd ones from position 5 on; all but the first sample."""
    dealer = Dealer(200, 4)
    requests = [dealer.request(torch.randint(90, (chunk + 5,)).tolist()) for chunk in chunks]
    for request in requests[1::2]:
        request.num_computed = 5
    scheduled = [
        request.take(chunk, samples=i > 0) for i, (request, chunk) in enumerate(zip(requests, chunks, strict=True))
    ]
    return step_tensors(plan_of(*scheduled), [GroupSpec(4)], torch.device("cpu"))


def assert_as_torch(ours: Tensor, torchs: Tensor) -> None:
    """Sums are taken in another order: bf16 may round to the neighbour, half a percent away, but seldom does."""
    assert ours.dtype == torchs.dtype
    if ours.dtype == BF16:
        assert (ours != torchs).float().mean() < 0.01 + 2 / ours.numel()
        torch.testing.assert_close(ours, torchs, rtol=2**-7, atol=2**-9)
    else:
        torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=2e-6)


def filled(module: Part, dtype: torch.dtype) -> Part:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.to(dtype).requires_grad_(False)


@DTYPES
@SIZES
@pytest.mark.parametrize("embedding_type", [Embedding, ScaledEmbedding])
def test_embedding(embedding_type: type[Embedding], size: int, dtype: torch.dtype) -> None:
    module, step = filled(embedding_type(90, size), dtype), step_of(20, 1, 3)
    scale = torch.tensor(size**0.5, dtype=dtype).item() if embedding_type is ScaledEmbedding else 1.0
    table, out = packed(module.weight, MappedMemory()), torch.empty(step.num_tokens, size, dtype=dtype)
    run_op(OpKind.EMBED, step, {"out": out}, num_threads=2, n=90, k=size, weight=table, scale=scale)
    assert torch.equal(out, module(step.token_ids))


@pytest.mark.parametrize("head_dim", [2, 16, 40, 64])
def test_rotation(head_dim: int) -> None:
    step, frequencies = step_of(20, 1, 3), RopeSpec(10_000.0).inverse_frequencies(head_dim)
    out = torch.empty(step.num_tokens, 2, head_dim // 2)
    run_op(OpKind.ROTATION, step, {"other": torch.empty(0), "out": out}, k=head_dim // 2, weight=frequencies)
    expected = Rotation.at(step.positions, frequencies)
    torch.testing.assert_close(out[:, 0], expected.cos[:, 0], rtol=0, atol=2e-7)
    torch.testing.assert_close(out[:, 1], expected.sin[:, 0], rtol=0, atol=2e-7)


def test_rotation_at_far_positions() -> None:
    frequencies, step = RopeSpec(10_000.0).inverse_frequencies(64), step_of(len(FAR))
    step = replace(step, positions=torch.tensor(FAR, dtype=torch.int32))
    out = torch.empty(len(FAR), 2, 32)
    run_op(OpKind.ROTATION, step, {"other": torch.empty(0), "out": out}, k=32, weight=frequencies)
    for found, expected in zip(out.unbind(1), far_rotation(frequencies), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-7)


def native_norm(
    norm: RMSNorm, step: StepTensors, hidden: Tensor, other: Tensor | None = None, **fields: bool
) -> Tensor:
    num_rows, size = len(step.sample_rows) if fields else step.num_tokens, hidden.shape[1]
    out = torch.empty(num_rows, size, dtype=hidden.dtype)
    buffers = {"in_": hidden, "out": out} if other is None else {"in_": hidden, "other": other, "out": out}
    offset = isinstance(norm, OffsetRMSNorm)
    run_op(
        OpKind.NORM,
        step,
        buffers,
        num_threads=2,
        k=size,
        weight=norm.weight,
        eps=norm.eps,
        norm_offset=offset,
        **fields,
    )
    return out


@DTYPES
@SIZES
@NORMS
def test_norm(norm_type: type[RMSNorm], size: int, dtype: torch.dtype) -> None:
    norm, step = filled(norm_type(size, 1e-5), dtype), step_of(20, 1, 3)
    hidden = 3 * torch.randn(step.num_tokens, size).to(dtype)
    assert_as_torch(native_norm(norm, step, hidden), norm(hidden))


@DTYPES
@SIZES
@NORMS
def test_norm_is_added(norm_type: type[RMSNorm], size: int, dtype: torch.dtype) -> None:
    norm, step = filled(norm_type(size, 1e-5), dtype), step_of(20, 1, 3)
    hidden, residual = torch.randn(2, step.num_tokens, size).to(dtype)
    assert_as_torch(native_norm(norm, step, hidden, residual), residual + norm(hidden))


@DTYPES
def test_norm_is_added_in_place(dtype: torch.dtype) -> None:
    norm, step = filled(OffsetRMSNorm(33, 1e-5), dtype), step_of(20, 1, 3)
    hidden, residual = torch.randn(2, step.num_tokens, 33).to(dtype)
    expected = residual + norm(hidden)
    place = {"in_": hidden, "out": residual}
    run_op(OpKind.NORM, step, place, k=33, weight=norm.weight, eps=norm.eps, norm_offset=True, other=1)
    assert_as_torch(residual, expected)


@DTYPES
@NORMS
def test_norm_of_the_sampling_rows(norm_type: type[RMSNorm], dtype: torch.dtype) -> None:
    norm, step = filled(norm_type(40, 1e-5), dtype), step_of(20, 1, 3)
    hidden = torch.full((step.num_tokens, 40), torch.nan, dtype=dtype)
    hidden[step.sample_rows] = torch.randn(len(step.sample_rows), 40).to(dtype)
    assert_as_torch(native_norm(norm, step, hidden, is_sampling=True), norm(hidden[step.sample_rows]))


def rotate_in_torch(heads: Tensor, rotation: Rotation, norm: RMSNorm | None) -> Tensor:
    return rotation.rotate(heads if norm is None else norm(heads))


@DTYPES
@pytest.mark.parametrize("head_dim", [8, 16, 40, 64, 128, 256])
@pytest.mark.parametrize("norm_type", [None, RMSNorm, OffsetRMSNorm])
def test_rotate(norm_type: type[RMSNorm] | None, head_dim: int, dtype: torch.dtype) -> None:
    step, num_heads, num_kv_heads = step_of(20, 1, 3), 5, 2
    norms = [None if norm_type is None else filled(norm_type(head_dim, 1e-6), dtype) for _ in range(2)]
    rotation = Rotation.at(step.positions, RopeSpec(10_000.0).inverse_frequencies(head_dim))
    rows = torch.randn(step.num_tokens, num_heads + 2 * num_kv_heads, head_dim).to(dtype)
    queries, keys, values = rows.clone().split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    cache = [torch.full((200 * 4, num_kv_heads, head_dim), torch.nan, dtype=dtype) for _ in range(2)]
    slots = step.groups[0].slots
    slots[3] = -1
    norm_fields = (
        {}
        if norm_type is None
        else {
            "weight": norms[0].weight,
            "weight2": norms[1].weight,
            "eps": 1e-6,
            "norm_offset": norm_type is OffsetRMSNorm,
        }
    )
    angles = torch.cat([rotation.cos, rotation.sin], dim=2)
    fields = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim, "block_size": 4}
    buffers = {"in_": rows, "other": angles}
    run_op(OpKind.ROTATE, step, buffers, num_threads=2, keys=cache[0], values=cache[1], **fields, **norm_fields)

    rotated = rotate_in_torch(keys, rotation, norms[1])
    assert_as_torch(rows[:, :num_heads], rotate_in_torch(queries, rotation, norms[0]))
    assert_as_torch(rows[:, num_heads:-num_kv_heads], rotated)
    assert torch.equal(rows[:, -num_kv_heads:], values)
    written = [slot for slot in slots.tolist() if slot >= 0]
    assert_as_torch(cache[0][written], rotated[slots >= 0])
    assert torch.equal(cache[1][written], values[slots >= 0])
    for pool in cache:
        pool[written] = torch.nan
        assert pool.isnan().all()


@DTYPES
def test_rows_of_large_numbers_stay_finite(dtype: torch.dtype) -> None:
    norm, step = filled(RMSNorm(64, 1e-5), dtype), step_of(4)
    hidden = torch.full((4, 64), 1e18).to(dtype)
    assert_as_torch(native_norm(norm, step, hidden), norm(hidden))
