"""The sampler's kernels draw what torch draws. Run by test_triton.py, interpreted or on a GPU."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import InterpreterBuilder

from engine.plan_builder import Dealer
from engine.triton_device import DEVICE
from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest
from labengine.engine import sampler, sampler_kernels, triton_sampler
from labengine.engine.attention.triton import is_interpreted

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
"""numpy's, of infinities and NaN that belong to the cases."""
VOCAB_SIZES = [1, 2, 33, 2047, 2048, 2049, 5000, 3 * 2048]
"""Around a chunk's size, and several chunks."""


@pytest.fixture(autouse=True)
def on_any_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter's tensors are on a CPU."""
    monkeypatch.setattr(sampler, "uses_kernels", lambda logits: True)
    yield


def requests_of(*settings: SamplingParams, random: Random) -> list[ScheduledRequest]:
    one = Dealer(10_000, 4).request([0] * 9).take(9)
    return [replace(one, request_id=row, sampling=s, seed=random.getrandbits(70)) for row, s in enumerate(settings)]


def by_torch(logits: Tensor, requests: list[ScheduledRequest], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    with monkeypatch.context() as patch:
        patch.setattr(sampler, "uses_kernels", lambda logits: False)
        return sampler.sample(logits.cpu(), requests)


def some_logits(random: Random, num_rows: int, size: int) -> Tensor:
    """Normal, equal, few distinct, mostly forbidden, one far above, tiny, huge."""
    logits = torch.randn(num_rows, size, generator=torch.Generator().manual_seed(random.getrandbits(30)))
    for row in logits:
        kind = random.randrange(8)
        if kind == 1:
            row.fill_(random.choice([0.0, -0.0, 7.0, -3e38]))
        elif kind == 2:
            row.round_()
        elif kind == 3:
            allowed = random.randrange(size)
            row[:allowed], row[allowed + 1 :] = -torch.inf, -torch.inf
        elif kind == 4:
            row[random.randrange(size)] = 80.0
        elif kind in (5, 6):
            row *= 1e-38 if kind == 5 else 5e37
        elif kind == 7:
            row.masked_fill_(torch.rand(size) < 0.9, -torch.inf)
            row[random.randrange(size)] = 1.0
    return logits


@pytest.mark.parametrize("size", VOCAB_SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_tokens_as_torch(size: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(f"{size} {seed}")
    num_rows = random.choice([1, 7, 16])
    logits = some_logits(random, num_rows, size)
    temperatures = [0.0, 0.3, 1.0, 1.0, 4.0, 1e30, 1e-30, 5e-324]
    cuts = [(None, None), (None, None), (None, None), (3, None), (None, 0.8)]
    settings = []
    for _ in range(num_rows):
        top_k, top_p = random.choice(cuts)
        settings.append(SamplingParams(temperature=random.choice(temperatures), top_k=top_k, top_p=top_p))
    requests = requests_of(*settings, random=random)
    assert sampler.sample(logits.to(DEVICE), requests) == by_torch(logits, requests, monkeypatch)


def test_many_draws_from_a_flat_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights near 1: sums are far from exact, and a number is often close to two tokens' border."""
    random = Random(5)
    logits = (torch.randn(3, 2500, generator=torch.Generator().manual_seed(5)) * 1e-3).repeat(20, 1)
    requests = requests_of(*[SamplingParams(temperature=1.0)] * 60, random=random)
    assert sampler.sample(logits.to(DEVICE), requests) == by_torch(logits, requests, monkeypatch)


def drawn(logits: Tensor, temperature: float, number: float) -> int:
    draws = torch.tensor([[temperature], [number]], dtype=torch.float64, device=DEVICE)
    return int(triton_sampler.sample(logits.unsqueeze(0).to(DEVICE), draws)[0, 0])


def test_a_number_on_an_edge_draws_no_token_of_weight_0() -> None:
    """Also where the edge is a chunk's."""
    logits = torch.full((3 * 2048,), -torch.inf)
    logits[[1, 2047, 4100, 4102]] = 0.0
    found = [drawn(logits, 1.0, number) for number in (0.0, 0.25, 0.5, 0.75, 1 - 2**-53, 1.0)]
    assert found == [1, 2047, 4100, 4102, 4102, 4102]


def test_one_row_draws_the_same_among_others() -> None:
    random = Random(3)
    logits = torch.randn(5, 3000, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    requests = requests_of(
        *[SamplingParams(temperature=temperature) for temperature in (1.0, 0.0, 2.0, 0.5, 1.0)], random=random
    )
    together = sampler.sample(logits, requests)
    assert [sampler.sample(logits[row : row + 1], requests[row : row + 1])[0] for row in range(5)] == together


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 2047, 2048, 2499])
def test_broken_logits_name_the_request(temperature: float, value: float, place: int) -> None:
    logits = torch.randn(3, 2500, device=DEVICE)
    logits[1, place] = value
    requests = requests_of(*[SamplingParams(temperature=temperature)] * 3, random=Random(0))
    tokens, is_finite = sampler.sample_on_device(logits, requests).tolist()
    assert is_finite == [1, 0, 1] and all(0 <= token < 2500 for token in tokens)
    with pytest.raises(FloatingPointError, match="logits of request 1 hold NaN or infinity"):
        sampler.sample(logits, requests)


def test_a_row_without_any_allowed_token_is_broken() -> None:
    logits = torch.full((1, 3000), -torch.inf, device=DEVICE)
    for temperature in (0.0, 1.0):
        with pytest.raises(FloatingPointError, match="NaN or infinity"):
            sampler.sample(logits, requests_of(SamplingParams(temperature=temperature), random=Random(0)))


def test_rows_of_a_wider_tensor() -> None:
    """Logits padded at the right, as some heads have them: strided rows."""
    wide = torch.full((2, 2500), torch.nan, device=DEVICE)
    wide[:, :2100] = torch.arange(2100.0)
    assert sampler.sample(wide[:, :2100], requests_of(*[SamplingParams()] * 2, random=Random(0))) == [2099, 2099]


# -- what a batch costs ------------------------------------------------------------------------------------------------


class Counted:
    """A kernel that notes its launches. (The interpreter calls torch ops, which are none of ours.)"""

    def __init__(self, kernel: Any, launched: list[str]) -> None:
        self._kernel, self._launched = kernel, launched

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            self._launched.append(self._kernel.fn.__name__)
            with _disable_current_modes():
                self._kernel[grid](*args, **kwargs)

        return launch


class TorchOps(TorchDispatchMode):
    """Notes the torch ops that launch or copy; the others allocate, or make views."""

    FREE = ("empty", "new_empty", "detach", "lift_fresh")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := func.overloadpacket.__name__) not in self.FREE:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def launches(logits: Tensor, requests: list[ScheduledRequest], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the torch ops and the kernels of a batch."""
    launched: list[str] = []
    with monkeypatch.context() as patch, TorchOps() as ops:
        for name in ("survey_kernel", "weigh_kernel", "choose_kernel"):
            patch.setattr(sampler_kernels, name, Counted(getattr(sampler_kernels, name), launched))
        sampler.sample_on_device(logits, requests)
    return [*ops.names, *launched]


def test_launches_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for greedy rows alone; with drawn rows three, and a copy of their numbers."""
    logits = torch.randn(4, 5000, device=DEVICE)
    greedy, warm = SamplingParams(), SamplingParams(temperature=1.0)
    random = Random(0)
    assert launches(logits, requests_of(*[greedy] * 4, random=random), monkeypatch) == [
        "survey_kernel", "choose_kernel",
    ]  # fmt: skip
    for settings in ([warm] * 4, [greedy, warm, greedy, warm]):
        found = launches(logits, requests_of(*settings, random=random), monkeypatch)
        assert found[-3:] == ["survey_kernel", "weigh_kernel", "choose_kernel"]
        assert {*found[:-3]} <= {"_to_copy", "_pin_memory", "copy_"} and len(found) <= 6


if is_interpreted():  # it is the interpreter that counts

    @pytest.mark.parametrize(("temperature", "most"), [(0.0, 1.01), (1.0, 2.06)])
    def test_bytes_of_a_row(temperature: float, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of Qwen's 151,936 logits a greedy row reads each once, a drawn one twice, and a chunk.

        What is left is a few hundredths: each chunk reads the maxima of its row.
        """
        num_bytes = 0

        def counting(name: str) -> None:
            method = getattr(InterpreterBuilder, name)
            mask_at = inspect.getfullargspec(method).args.index("mask")

            def counted(*args: Any) -> Any:
                nonlocal num_bytes
                num_bytes += int(args[mask_at].data.sum()) * args[1].get_element_ty().primitive_bitwidth // 8
                return method(*args)

            monkeypatch.setattr(InterpreterBuilder, name, counted)

        logits = torch.randn(1, 151_936)
        requests = requests_of(SamplingParams(temperature=temperature), random=Random(0))
        counting("create_masked_load")
        counting("create_masked_store")
        sampler.sample_on_device(logits, requests)
        reads = num_bytes / (logits.numel() * 4)
        assert int(most) <= reads <= most
