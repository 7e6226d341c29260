"""The sampler's kernels draw what torch draws. Run by test_triton.py, interpreted or on a GPU.

Their sums are rounded otherwise than torch's: a token is compared by its length, see near_draws.py.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from triton.language import standard
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps

from engine.plan_builder import Dealer
from engine.triton_device import DEVICE
from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest
from labengine.engine import sampler, sampler_cut_kernels, sampler_kernels, triton_sampler
from labengine.engine.attention.triton import is_interpreted
from labengine.engine.batch_sampling import BatchSampling, cuts
from near_draws import FLOAT32, are_drawn, laid_out
from sampling import sampled
from torch_ops import TorchOps

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
"""numpy's, of infinities and NaN that belong to the cases."""
VOCAB_SIZES = [1, 2, 33, 2047, 2048, 2049, 5000, 3 * 2048]
"""Around a chunk's size, and several chunks."""


@pytest.fixture(autouse=True)
def on_any_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The interpreter's tensors are on a CPU."""
    monkeypatch.setattr(sampler, "uses_kernels", lambda logits: True)
    yield


@pytest.fixture(autouse=True)
def sorts_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sort reduces by xor. The interpreter knows other functions, and calls this one for each number: for minutes."""
    reduce_by_calls = ReduceOps.generic_reduce

    def reduce(self: Any, values: Any) -> Any:
        if self.combine_fn is not standard._xor_combine:
            return reduce_by_calls(self, values)
        found = np.bitwise_xor.reduce(values[0].handle.data, axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(found, values[0].dtype)

    monkeypatch.setattr(ReduceOps, "generic_reduce", reduce)


def requests_of(*settings: SamplingParams, random: Random) -> list[ScheduledRequest]:
    one = Dealer(10_000, 4).request([0] * 9).take(9)
    return [replace(one, request_id=row, sampling=s, seed=random.getrandbits(70)) for row, s in enumerate(settings)]


def by_torch(logits: Tensor, requests: list[ScheduledRequest], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    with monkeypatch.context() as patch:
        patch.setattr(sampler, "uses_kernels", lambda logits: False)
        return sampler.sample(logits.cpu(), requests)


def assert_drawn(logits: Tensor, requests: list[ScheduledRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row's number draws its token, up to rounding; nearly all rows have torch's token."""
    tokens, expected = sampler.sample(logits.to(DEVICE), requests), by_torch(logits, requests, monkeypatch)
    assert are_drawn(tokens, logits, requests)
    differing = [row for row, pair in enumerate(zip(tokens, expected, strict=True)) if len({*pair}) > 1]
    assert len(differing) <= 1, differing


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


@pytest.mark.parametrize(("size", "seed"), sampled(product(VOCAB_SIZES, range(3)), {(1, 0), (2049, 0), (5000, 0)}))
def test_the_same_tokens_as_torch(size: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(f"{size} {seed}")
    num_rows = random.choice([1, 7, 16])
    logits = some_logits(random, num_rows, size)
    temperatures = [0.0, 0.3, 1.0, 1.0, 4.0, 1e30, 1e-30, 5e-324]
    settings = [SamplingParams(temperature=random.choice(temperatures)) for _ in range(num_rows)]
    requests = requests_of(*settings, random=random)
    assert_drawn(logits, requests, monkeypatch)


def test_many_draws_from_a_flat_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights near 1: sums are far from exact, and of 60 numbers some are close to two tokens' border."""
    random = Random(5)
    logits = (torch.randn(3, 2500, generator=torch.Generator().manual_seed(5)) * 1e-3).repeat(20, 1)
    requests = requests_of(*[SamplingParams(temperature=1.0)] * 60, random=random)
    assert_drawn(logits, requests, monkeypatch)


def drawn(logits: Tensor, sampling: SamplingParams, numbers: list[float]) -> list[int]:
    """Return the tokens of a row at several numbers."""
    size = len(logits)
    is_cut = cuts(sampling, size)
    settings = [*triton_sampler.roots([sampling.temperature]), (sampling.top_k or size) * is_cut, sampling.top_p or 1.0]
    root, top_k, top_p = (torch.full((len(numbers),), one, dtype=torch.float64) for one in settings)
    draws = torch.stack((root, torch.tensor(numbers, dtype=torch.float64), top_k, top_p)).to(DEVICE)
    rows = logits.to(DEVICE).expand(len(numbers), -1)
    return triton_sampler.sample(rows, draws, cuts=is_cut)[0].tolist()


WAYS_TO_DRAW = [(1.0, None, None), (0.6, None, None), (1.0, 5, None), (2.0, None, 0.8)]
"""Temperature, top-k and top-p."""


def eight_tokens() -> tuple[Tensor, list[int]]:
    """Return a row in which eight tokens of two chunks are allowed, and their ids."""
    logits, places = torch.full((2048 + 300,), -torch.inf), [0, 3, 700, 701, 2047, 2048, 2050, 2347]
    logits[places] = torch.tensor([0.0, 1.0, 0.9, -2.0, 0.5, 0.7, -0.5, 0.1])
    return logits, places


@pytest.mark.sweep  # more loosely what the test of the borders shows at every change
@pytest.mark.parametrize(("temperature", "top_k", "top_p"), WAYS_TO_DRAW)
def test_evenly_spaced_numbers_draw_each_token_by_its_probability(
    temperature: float, top_k: int | None, top_p: float | None
) -> None:
    """The numbers that draw a token are its probability's share of all, to less than one number."""
    sampling = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    (logits, places), num_numbers = eight_tokens(), 97
    numbers = [(place + 0.5) / num_numbers for place in range(num_numbers)]
    found = Counter(drawn(logits, sampling, numbers))
    ids, weights = laid_out(logits, sampling)
    probabilities = dict(zip(ids.tolist(), (weights / weights.sum()).tolist(), strict=True))
    for token in {*places, *found}:
        assert abs(found[token] - num_numbers * probabilities.get(token, 0.0)) < 1, token


def assert_borders(logits: Tensor, sampling: SamplingParams) -> None:
    """Numbers just within a token's length draw the token; tokens that are shorter than the tolerance are left out."""
    ids, weights = laid_out(logits, sampling)
    ends = weights.cumsum(0) / weights.sum()
    expected, numbers = [], []
    for token, begin, end in zip(ids.tolist(), (ends - weights / weights.sum()).tolist(), ends.tolist(), strict=True):
        if end - begin > 2 * FLOAT32:
            numbers += [begin + FLOAT32, end - FLOAT32]
            expected += [token, token]
    assert drawn(logits, sampling, numbers) == expected


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), sampled(WAYS_TO_DRAW, WAYS_TO_DRAW[3:]))
def test_a_token_is_drawn_up_to_its_borders(temperature: float, top_k: int | None, top_p: float | None) -> None:
    assert_borders(eight_tokens()[0], SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p))


@triton.jit
def select_kernel(ends, weights, selected, goal):
    """Write what the sampler's kernels select of 4 indices."""
    index = tl.arange(0, 4)
    tl.store(selected, sampler_kernels._first_above(tl.load(ends + index), tl.load(weights + index), index, goal))


@pytest.mark.parametrize(("goal", "expected"), [(-1e-9, 1), (0.0, 1), (1.0, 2), (1.5, 2), (2.0, 2), (2.1, 2)])
def test_a_goal_that_rounding_has_moved_out_of_the_chunk(goal: float, expected: int) -> None:
    ends, weights = (torch.tensor(values, device=DEVICE) for values in ([0.0, 1.0, 2.0, 2.0], [0.0, 1.0, 1.0, 0.0]))
    selected = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    select_kernel[(1,)](ends, weights, selected, goal)
    assert selected.item() == expected


TEMPERATURES = [5e-324, 1e-320, 1e-300, 1e-46, 1e-30, 1e-3, 1.0, 1e3, 1e30, 1e46, 1e300]


@pytest.mark.parametrize(("temperature",), sampled(zip(TEMPERATURES), [(5e-324,), (1.0,), (1e300,)]))
def test_weights_of_any_temperature(temperature: float) -> None:
    """Logits as far apart as the temperature: their weights are what they are at temperature 1. 0 and infinity stay."""
    logits = torch.full((2100,), -torch.inf, dtype=torch.float64)
    logits[[5, 9, 2099]] = torch.tensor([-1.0, 0.0, -2.0], dtype=torch.float64) * min(max(temperature, 2.0**-149), 1e38)
    assert_borders(logits.float(), SamplingParams(temperature=temperature))


def test_a_light_token_behind_a_heavy_one_keeps_its_length() -> None:
    """Float32 has no number between 1 and 1 + 1e-8: tokens within a chunk are laid end to end in float64.

    Where they begin is rounded, by a few of their lengths.
    """
    logits = torch.full((2048,), -torch.inf)
    logits[0], logits[1:101] = 0.0, math.log(1e-8)
    total = 1 + 100 * 1e-8
    numbers = [(1 + (place + 0.5) * 1e-8) / total for place in range(50)]
    light = [token for token in drawn(logits, SamplingParams(temperature=1.0), numbers) if token > 0]
    assert len(light) >= 25 and light == [*range(light[0], light[-1] + 1)]


def test_a_number_on_an_edge_draws_no_token_of_weight_0() -> None:
    """Also where the edge is a chunk's."""
    logits = torch.full((3 * 2048,), -torch.inf)
    logits[[1, 2047, 4100, 4102]] = 0.0
    found = drawn(logits, SamplingParams(temperature=1.0), [0.0, 0.25, 0.5, 0.75, 1 - 2**-53, 1.0])
    assert found == [1, 2047, 4100, 4102, 4102, 4102]


def test_one_row_draws_the_same_among_others() -> None:
    random = Random(3)
    logits = torch.randn(6, 3000, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    cut = SamplingParams(temperature=1.0, top_k=40, top_p=0.9)
    settings = [*(SamplingParams(temperature=temperature) for temperature in (1.0, 0.0, 2.0, 0.5, 1.0)), cut]
    requests = requests_of(*settings, random=random)
    together = sampler.sample(logits, requests)
    assert [sampler.sample(logits[row : row + 1], requests[row : row + 1])[0] for row in range(6)] == together


# -- top-k and top-p ---------------------------------------------------------------------------------------------------

CUTS = [(1, None), (2, 0.5), (50, None), (50, 0.9), (1023, None), (1024, 0.999), (1025, None), (3000, 0.5)]
CUTS += [(None, None), (None, 0.1), (None, 0.9), (None, 0.999), (None, 1 - 2**-53), (10**6, 0.7)]
SIZES = [(1,), (2,), (700,), (1024,), (1025,), (4096,), (4097,), (9001,)]


@pytest.mark.parametrize(("size",), sampled(SIZES, {(1025,)}))
def test_cut_rows_draw_what_torch_draws(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All kinds of logits, and of cuts: within the candidates, beyond them, and too large for them."""
    random = Random(f"cut {size}")
    num_rows = len(CUTS)
    logits = some_logits(random, num_rows, size)
    settings = [
        SamplingParams(temperature=random.choice([0.3, 1.0, 1.0, 2.0, 1e-30, 1e30]), top_k=top_k, top_p=top_p)
        for top_k, top_p in CUTS
    ]
    requests = requests_of(*settings, random=random)
    assert_drawn(logits, requests, monkeypatch)


def cut_row(logits: Tensor, top_k: int, top_p: float, number: float) -> tuple[int, int]:
    """Return the token of temperature 1 and the state under it."""
    root = float(triton_sampler.roots([1.0])[0])
    draws = torch.tensor([[root], [number], [top_k], [top_p]], dtype=torch.float64, device=DEVICE)
    token, state = triton_sampler.sample(logits.unsqueeze(0).to(DEVICE), draws, cuts=True)[:, 0].tolist()
    return token, state


@pytest.mark.parametrize(("num_larger", "top_k"), sampled([(0, 7), (3, 7), (1, 3)], [(1, 3)]))
def test_of_many_equal_logits_the_lower_ids_are_kept(num_larger: int, top_k: int) -> None:
    """More than there is room for: the search ends at a single value, and takes some of its tokens.

    A top-k of 3 is first looked for within the maxima of the 3 chunks.
    """
    logits = torch.full((5000,), 2.0)
    logits[4990 : 4990 + num_larger] = 2.001
    tokens = {cut_row(logits, top_k, 1.0, (place + 0.5) / top_k)[0] for place in range(top_k)}
    assert tokens == {*range(4990, 4990 + num_larger), *range(top_k - num_larger)}


def test_top_p_that_needs_more_than_the_candidates_is_left_to_torch() -> None:
    """Equal tokens: of 5,000 a tenth is among the candidates, and a half is not."""
    logits = torch.zeros(5000)
    assert cut_row(logits, 5000, 0.1, 0.5) == (250, 1)
    assert cut_row(logits, 5000, 0.5, 0.5)[1] == triton_sampler.MORE
    requests = requests_of(SamplingParams(temperature=1.0, top_p=0.5), random=Random(0))
    batch = BatchSampling(requests, logits.numel())
    assert not sampler.asks_the_host(batch, logits.unsqueeze(0)), "it is found out when the tokens are read"


@pytest.mark.parametrize(("scale",), sampled([(1e-30,), (1e-3,), (1.0,), (30.0,), (1e30,)], [(1e30,)]))
def test_candidates_are_the_first_tokens_in_order(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the scale: digits of a distance's bits are looked at until few enough tokens are within."""
    logits = torch.randn(1, 9000, generator=torch.Generator().manual_seed(1)) * scale
    listed: list[tuple[Tensor, Tensor]] = []

    class Noted:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def launch(candidates: Tensor, counts: Tensor, *args: Any, **kwargs: Any) -> None:
                listed.append((candidates.clone(), counts.clone()))

            return launch

    monkeypatch.setattr(sampler_cut_kernels, "cut_kernel", Noted())
    for top_k in (1, 4, 5, 6, 100, 1024, 9000):
        cut_row(logits[0], top_k, 0.5, 0.5)
        candidates, counts = listed.pop()
        count = int(counts[0])
        shifted = logits - logits.amax()
        in_order = sampler._in_order(shifted, count)[0].tolist()
        assert min(top_k, triton_sampler.ROOM // 2) <= count <= triton_sampler.ROOM
        assert sorted((candidates[0, :count] & 0xFFFFFFFF).tolist()) == sorted(in_order)


def test_a_top_k_up_to_the_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of one chunk, and of many: a chunk is read if one of its tokens may be among the k."""
    random, top_k = Random(11), [1, 2, 6, 7, 8]
    logits = torch.randn(len(top_k), 7 * 2048 - 5, generator=torch.Generator().manual_seed(11)).repeat(2, 1)
    logits[: len(top_k), 9000:9040] += 9.0
    settings = [SamplingParams(temperature=2.0, top_k=k) for k in top_k * 2]
    assert_drawn(logits, requests_of(*settings, random=random), monkeypatch)


# -- broken logits -----------------------------------------------------------------------------------------------------


WAYS = [(0.0, None), (1.0, None), (1.0, 20)]
PLACES = (0, 2047, 2048, 2499)
BROKEN = {(WAYS[0], "nan", 0), (WAYS[1], "inf", 2047), (WAYS[2], "nan", 2048), (WAYS[2], "inf", 2499)}
"""Each place, each way and each value."""


@pytest.mark.parametrize(("way", "value", "place"), sampled(product(WAYS, ("nan", "inf"), PLACES), BROKEN))
def test_broken_logits_name_the_request(way: tuple[float, int | None], value: str, place: int) -> None:
    temperature, top_k = way
    logits = torch.randn(3, 2500, device=DEVICE)
    logits[1, place] = float(value)
    requests = requests_of(*[SamplingParams(temperature=temperature, top_k=top_k)] * 3, random=Random(0))
    tokens, is_finite = sampler.sample_on_device(logits, requests).tolist()
    assert is_finite == [1, 0, 1] and all(0 <= token < 2500 for token in tokens)
    with pytest.raises(FloatingPointError, match=r"request 1 .*NaN"):
        sampler.sample(logits, requests)


def test_a_row_without_any_allowed_token_is_broken() -> None:
    logits = torch.full((1, 3000), -torch.inf, device=DEVICE)
    for temperature in (0.0, 1.0):
        with pytest.raises(FloatingPointError, match="NaN"):
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


COPIES = {"_to_copy", "_pin_memory", "copy_"}
"""Of the rows' numbers, through pinned memory to a GPU. (Asking whether memory is pinned is free; see TorchOps.)"""


def launches(logits: Tensor, requests: list[ScheduledRequest], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the torch ops and the kernels of a batch."""
    launched: list[str] = []
    with monkeypatch.context() as patch, TorchOps() as ops:
        for module in (sampler_kernels, sampler_cut_kernels):
            for name in [name for name in vars(module) if name.endswith("_kernel")]:
                patch.setattr(module, name, Counted(getattr(module, name), launched))
        sampler.sample_on_device(logits, requests)
    return [*ops.names, *launched]


def test_launches_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for greedy rows alone; with drawn rows three, and a copy of their numbers; with top-k or top-p five."""
    logits = torch.randn(4, 5000, device=DEVICE)
    greedy, warm = SamplingParams(), SamplingParams(temperature=1.0)
    random = Random(0)
    assert launches(logits, requests_of(*[greedy] * 4, random=random), monkeypatch) == [
        "survey_kernel", "choose_kernel",
    ]  # fmt: skip
    for settings in ([warm] * 4, [greedy, warm, greedy, warm]):
        found = launches(logits, requests_of(*settings, random=random), monkeypatch)
        assert found[-3:] == ["survey_kernel", "weigh_kernel", "choose_kernel"]
        assert {*found[:-3]} <= COPIES and len(found) <= 6
    cut = [greedy, warm, SamplingParams(temperature=1.0, top_k=9), SamplingParams(temperature=1.0, top_p=0.2)]
    found = launches(logits, requests_of(*cut, random=random), monkeypatch)
    assert found[-5:] == ["survey_kernel", "weigh_kernel", "choose_kernel", "collect_kernel", "cut_kernel"]
    assert {*found[:-5]} <= COPIES and len(found) <= 8


if is_interpreted():  # it is the interpreter that counts
    COST = {"greedy": 1.01, "warm": 2.06, "top-k 20": 1.6, "top-k 50": 2.0, "top-k 100": 3.1, "top-p": 5.1}
    """Bytes of a row's kind, in times of the row's own."""
    OF_THE_KIND = {
        "greedy": SamplingParams(),
        "warm": SamplingParams(temperature=1.0),
        **{f"top-k {top_k}": SamplingParams(temperature=1.0, top_k=top_k) for top_k in (20, 50, 100)},
        "top-p": SamplingParams(temperature=1.0, top_p=0.5),
    }

    KINDS = [*((kind,) for kind in COST), ("greedy", "warm", "top-k 50", "greedy")]

    @pytest.mark.parametrize(("kinds",), sampled(((kinds,) for kinds in KINDS), [(KINDS[-1],)]), ids=", ".join)
    def test_bytes_of_a_batch(kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        """Of Qwen's 151,936 logits a greedy row reads each once, a drawn one twice, and a chunk.

        What is left is a few hundredths: each chunk reads the maxima of its row. A row with top-k reads once more those
        blocks whose chunks have a likely token; with a top-k beyond the number of chunks, 75, it reads all three times,
        when one histogram is enough, as here; with top-p once more for the weights, and for a second histogram. A row
        costs among others what it costs alone.
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

        logits = 3 * torch.randn(1, 151_936, generator=torch.Generator().manual_seed(2)).repeat(len(kinds), 1)
        requests = requests_of(*[OF_THE_KIND[kind] for kind in kinds], random=Random(0))
        counting("create_masked_load")
        counting("create_masked_store")
        sampler.sample_on_device(logits, requests)
        reads = num_bytes / (logits.shape[1] * 4)
        most = sum(COST[kind] for kind in kinds)
        assert 0.9 * most <= reads <= most
