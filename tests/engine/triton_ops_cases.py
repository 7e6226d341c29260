"""The fused ops against the modules they replace. Run by test_triton.py, interpreted or on a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from engine.ops_settings import SMALL
from engine.triton_device import DEVICE
from labengine.engine.attention.triton import is_interpreted, write_kv
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.modules import OffsetRMSNorm, RMSNorm
from labengine.engine.ops.trial_layer import take_trial_layer
from labengine.engine.ops.triton import TritonOps
from labengine.engine.ops.triton_ops import add_rms_norm, gated, rotate_and_write, rotate_heads
from labengine.engine.rope import Rotation
from labengine.engine.trial_launch import launch_refusal
from sampling import sampled

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EPS = 1e-6


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape).to(DEVICE, dtype)


def norm_of(weight: Tensor, offset: bool) -> RMSNorm:
    norm = (OffsetRMSNorm if offset else RMSNorm)(len(weight), EPS)
    norm.weight = torch.nn.Parameter(weight)
    return norm


def agrees(found: Tensor, expected: Tensor) -> bool:
    """Equal but for the last bit of a few, which sums in another order put on the other side of a middle.

    The interpreter cuts bfloat16 off instead of rounding: there every number may be off by a bit per rounding.
    """
    assert found.dtype == expected.dtype and found.shape == expected.shape
    difference = (found.double() - expected.double()).abs()
    last_bit = torch.finfo(found.dtype).eps * expected.double().abs()
    if found.dtype == torch.float32:
        return bool((difference <= 8 * last_bit + 1e-6).all())
    if found.dtype == torch.bfloat16 and is_interpreted():
        return bool((difference <= 4 * last_bit + 0.02).all())
    return bool((difference <= last_bit + 1e-6).all() and (difference > 1e-6).double().mean() < 0.01)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("offset", [False, True], ids=["weight", "1+weight"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [48, 576, 1024])
@torch.inference_mode()
def test_add_rms_norm(size: int, dtype: torch.dtype, offset: bool) -> None:
    hidden, residual = (random(5, size, dtype=dtype) for _ in range(2))
    before = hidden.clone(), residual.clone()
    norm = norm_of(random(size, dtype=dtype), offset)
    normed, summed = add_rms_norm(hidden, residual, norm.weight, EPS, offset)
    assert agrees(summed, hidden + residual)
    assert agrees(normed, norm(hidden + residual))
    alone, same = add_rms_norm(hidden[:, :size], None, norm.weight, EPS, offset)
    assert agrees(alone, norm(hidden)) and torch.equal(same, hidden)
    assert torch.equal(hidden, before[0]) and torch.equal(residual, before[1])


@pytest.mark.parametrize("normed", ["no norm", "weight", "1+weight"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("num_heads", "head_dim"), [(6, 16), (9, 64), (16, 128), (1, 256), (3, 80)])
@torch.inference_mode()
def test_rotate_heads(num_heads: int, head_dim: int, dtype: torch.dtype, normed: str) -> None:
    """A slice of qkv, in place: nothing but the slice changes."""
    qkv = random(4, num_heads + 3, head_dim, dtype=dtype)
    frequencies = 1.0 / 10_000 ** (torch.arange(head_dim // 2, device=DEVICE) / (head_dim // 2))
    rotation = Rotation.at(torch.tensor([0, 3, 77, 4000], device=DEVICE), frequencies)
    norm = None if normed == "no norm" else norm_of(random(head_dim, dtype=dtype), normed == "1+weight")
    expected = qkv.clone()
    heads = qkv[:, 1:-2]
    expected[:, 1:-2] = rotation.rotate(heads if norm is None else norm(heads))
    weight, offset = (None, False) if norm is None else (norm.weight, normed == "1+weight")
    rotate_heads(heads, rotation.cos, rotation.sin, weight, EPS, offset)
    assert agrees(qkv, expected)
    assert torch.equal(qkv[:, 0], expected[:, 0]) and torch.equal(qkv[:, -2:], expected[:, -2:])


SHAPES = [(9, 3, 64), (16, 8, 128), (1, 1, 256), (3, 1, 80)]
NORMS = ("no norm", "weight", "1+weight")
WRITTEN = {
    (SHAPES[0], torch.float32, "no norm"),
    (SHAPES[1], torch.bfloat16, "weight"),
    (SHAPES[2], torch.float16, "1+weight"),
    (SHAPES[3], torch.bfloat16, "1+weight"),
}
"""Each shape, each precision and each norm."""


@pytest.mark.parametrize(("shape", "dtype", "normed"), sampled(product(SHAPES, DTYPES, NORMS), WRITTEN), ids=str)
@torch.inference_mode()
def test_rotate_and_write(shape: tuple[int, int, int], dtype: torch.dtype, normed: str) -> None:
    num_heads, num_kv_heads, head_dim = shape
    """To the bit what rotation and write give one after the other; slots of other tokens keep their NaN."""
    total = num_heads + 2 * num_kv_heads
    heads = random(5, total + 2, head_dim, dtype=dtype)[:, 1:-1]
    separate = heads.clone()
    frequencies = 1.0 / 10_000 ** (torch.arange(head_dim // 2, device=DEVICE) / (head_dim // 2))
    rotation = Rotation.at(torch.tensor([0, 3, 77, 4000, 5], device=DEVICE), frequencies)
    weights = None if normed == "no norm" else (random(head_dim, dtype=dtype), random(head_dim, dtype=dtype))
    offset = normed == "1+weight"
    slots = torch.tensor([7, -1, 0, 11, 4], dtype=torch.int32, device=DEVICE)
    one, other = (
        LayerKV(*torch.full((2, 3, 4, num_kv_heads, head_dim), torch.nan, dtype=dtype, device=DEVICE)) for _ in range(2)
    )
    queries, keys, values = separate.split((num_heads, num_kv_heads, num_kv_heads), 1)
    for part, weight in zip((queries, keys), weights or (None, None), strict=True):
        rotate_heads(part, rotation.cos, rotation.sin, weight, EPS, offset)
    write_kv(keys, values, one, slots)
    before = heads.clone()
    rotate_and_write(heads, num_kv_heads, (rotation.cos, rotation.sin), weights, EPS, offset, slots, other)
    assert torch.equal(heads[:, :num_heads], queries)
    assert torch.equal(heads[:, num_heads:], before[:, num_heads:]), "keys and values stay as they came"
    for written, wanted in ((other.keys, one.keys), (other.values, one.values)):
        assert torch.equal(written.nan_to_num(9.0), wanted.nan_to_num(9.0))
    assert int(other.keys.isfinite().all(-1).all(-1).sum()) == 4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [80, 1536])
@torch.inference_mode()
def test_gated(size: int, dtype: torch.dtype) -> None:
    gate_up = 4 * random(3, 2 * size, dtype=dtype)
    gate_up[0, :2] = torch.tensor([-60.0, 60.0], dtype=dtype)
    gate, up = gate_up.chunk(2, dim=-1)
    assert agrees(gated(gate_up, "silu"), silu(gate) * up)
    assert agrees(gated(gate_up, "gelu_tanh"), gelu(gate, approximate="tanh") * up)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_trial_launch_passes_here(dtype: torch.dtype) -> None:
    qwen3 = replace(SMALL, device=DEVICE, dtype=dtype, hidden_size=1024, head_dim=128, has_head_norms=True)
    for setting in (replace(SMALL, device=DEVICE, dtype=dtype), qwen3):
        assert launch_refusal(DEVICE, lambda setting=setting: take_trial_layer(TritonOps(), setting)) is None


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"silu.*gelu_tanh.*'relu'"):
        gated(random(1, 2, dtype=torch.float32), "relu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="contiguous"):
        rotate_heads(torch.zeros(1, 16, 2).mT, torch.zeros(1), torch.zeros(1), None, 0.0, False)
