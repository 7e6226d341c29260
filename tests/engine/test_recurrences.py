"""The scans against their definitions, token by token in float64; cut anywhere, they give the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from labengine.engine.recurrences import PIECE, convolution, delta_scan, mamba2_scan

LENGTHS = [1, 2, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7]
N, HEADS, DIM, STATE = 2, 3, 5, 4
Scan = Callable[..., tuple[Tensor, Tensor]]


def mamba2_by_definition(
    x: Tensor, logs: Tensor, keys: Tensor, queries: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    outs = []
    for t in range(x.shape[1]):
        state = state * logs[:, t, :, None, None].exp() + x[:, t, :, :, None] * keys[:, t, :, None, :]
        outs.append((state * queries[:, t, :, None, :]).sum(-1))
    return torch.stack(outs, 1), state


def delta_by_definition(
    queries: Tensor, keys: Tensor, values: Tensor, logs: Tensor, rates: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    outs = []
    for t in range(keys.shape[1]):
        state = state * logs[:, t, :, None, None].exp()
        key = keys[:, t, :, :, None]
        error = values[:, t] - (state * key).sum(-2)
        state = state + key * (rates[:, t, :, None] * error).unsqueeze(-2)
        outs.append((state * queries[:, t, :, :, None]).sum(-2))
    return torch.stack(outs, 1), state


def mamba2_case(t: int) -> tuple[Tensor, ...]:
    torch.manual_seed(t)
    x, keys, queries = torch.randn(N, t, HEADS, DIM), torch.randn(N, t, HEADS, STATE), torch.randn(N, t, HEADS, STATE)
    return x, -torch.rand(N, t, HEADS), keys, queries, torch.randn(N, HEADS, DIM, STATE)


def delta_case(t: int) -> tuple[Tensor, ...]:
    torch.manual_seed(t)
    queries, keys, values = (torch.randn(N, t, HEADS, size) for size in (STATE, STATE, DIM))
    keys = keys / keys.norm(dim=-1, keepdim=True)
    return queries, keys, values, -torch.rand(N, t, HEADS), torch.rand(N, t, HEADS), torch.randn(N, HEADS, STATE, DIM)


SCANS = [(mamba2_scan, mamba2_by_definition, mamba2_case), (delta_scan, delta_by_definition, delta_case)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("scan", "definition", "case"), SCANS, ids=["mamba2", "delta"])
def test_a_scan_is_its_definition(scan: Scan, definition: Scan, case: Callable[..., list[Tensor]], length: int) -> None:
    tensors = case(length)
    expected = definition(*(tensor.double() for tensor in tensors))
    for found, wanted in zip(scan(*tensors), expected, strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cut", [1, PIECE - 3, PIECE, 2 * PIECE])
@pytest.mark.parametrize(("scan", "definition", "case"), SCANS, ids=["mamba2", "delta"])
def test_a_scan_goes_on_from_its_state(
    scan: Scan, definition: Scan, case: Callable[..., list[Tensor]], cut: int
) -> None:
    *tensors, state = case(3 * PIECE)
    whole, end = scan(*tensors, state)
    first, middle = scan(*(tensor[:, :cut] for tensor in tensors), state)
    second, end_of_second = scan(*(tensor[:, cut:] for tensor in tensors), middle)
    torch.testing.assert_close(torch.cat((first, second), 1), whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(end_of_second, end, rtol=1e-4, atol=1e-4)


def test_decays_that_end_in_zero_leave_no_nan() -> None:
    """Log decays of -1e4 a token: the products underflow, and their quotients are never taken."""
    for scan, _, case in SCANS:
        tensors = list(case(PIECE + 5))
        index = 1 if scan is mamba2_scan else 3
        tensors[index] = tensors[index] * 1e4
        assert all(found.isfinite().all() for found in scan(*tensors))


@pytest.mark.parametrize("cut", [1, 2, 3, 6])
def test_a_convolution_goes_on_from_its_last_inputs(cut: int) -> None:
    torch.manual_seed(0)
    inputs, weight, bias = torch.randn(N, 7, DIM), torch.randn(DIM, 1, 4), torch.randn(DIM)
    zeros = torch.zeros(N, 3, DIM)
    whole, end = convolution(inputs, zeros, weight, bias)
    padded = torch.cat((zeros, inputs), 1)
    expected = sum(padded[:, k : k + 7] * weight[:, 0, k] for k in range(4)) + bias
    torch.testing.assert_close(whole, expected)
    assert torch.equal(end, inputs[:, -3:])
    first, state = convolution(inputs[:, :cut], zeros, weight, bias)
    second, end_of_second = convolution(inputs[:, cut:], state, weight, bias)
    torch.testing.assert_close(torch.cat((first, second), 1), whole)
    assert torch.equal(end_of_second, end)
