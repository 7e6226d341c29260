from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
import torch
from torch import Tensor

from engine.plan_builder import Dealer
from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest
from labengine.engine import sampler
from labengine.engine.random_numbers import mixed_seeds, uniforms
from labengine.engine.sampler import pick, sample
from labengine.engine.splitmix import uniform
from near_draws import are_drawn, laid_out
from torch_ops import TorchOps

PROBABILITIES = (0.05, 0.4, 0.1, 0.25, 0.2)
LOGITS = torch.tensor(PROBABILITIES).log()


def request(sampling: SamplingParams, seed: int = 0, position: int = 1) -> ScheduledRequest:
    return Dealer(10_000, 4).request([0] * position, sampling, seed).take(position)


def draws(sampling: SamplingParams, logits: Tensor = LOGITS, num_draws: int = 4000) -> Counter[int]:
    """How often each token came, one seed per draw."""
    one = request(sampling)
    requests = tuple(replace(one, seed=seed) for seed in range(num_draws))
    return Counter(sample(logits.expand(num_draws, -1), requests))


def assert_distribution(found: Counter[int], expected: dict[int, float]) -> None:
    assert found.keys() == expected.keys()
    for token, probability in expected.items():
        assert found[token] / found.total() == pytest.approx(probability, abs=0.03)


def test_greedy_takes_the_likeliest_and_the_first_of_equals() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, -1.0, 5.0]])
    assert sample(logits, (request(SamplingParams()), request(SamplingParams()))) == [1, 0]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_an_argmax_that_the_forward_pass_found_is_not_changed_by_a_draw(dtype: torch.dtype) -> None:
    argmax = torch.tensor([[1, 0], [1, 1]], dtype=dtype)
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, -math.inf, -math.inf]])
    hot = request(SamplingParams(temperature=50.0))
    found = set()
    for seed in range(40):
        found.add(sample(logits, (replace(hot, seed=seed), request(SamplingParams())), argmax)[0])
        assert argmax.tolist() == [[1, 0], [1, 1]]
    assert found == {0, 1, 2}


def test_no_request_no_token() -> None:
    assert sample(torch.empty(0, 5), ()) == []


def test_temperature_one_draws_from_the_models_distribution() -> None:
    assert_distribution(draws(SamplingParams(temperature=1.0)), dict(enumerate(PROBABILITIES)))


def test_temperature_sharpens() -> None:
    squared = [p * p / sum(q * q for q in PROBABILITIES) for p in PROBABILITIES]
    assert_distribution(draws(SamplingParams(temperature=0.5)), dict(enumerate(squared)))


def test_top_k_keeps_the_k_likeliest() -> None:
    assert_distribution(draws(SamplingParams(temperature=1.0, top_k=2)), {1: 0.4 / 0.65, 3: 0.25 / 0.65})


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.3, {1}), (0.41, {1, 3}), (0.8, {1, 3, 4}), (0.9, {1, 3, 4, 2}), (1.0, {0, 1, 2, 3, 4}), (1e-9, {1})],
)
def test_top_p_keeps_the_fewest_that_reach_p(top_p: float, kept: set[int]) -> None:
    share = sum(PROBABILITIES[token] for token in kept)
    expected = {token: PROBABILITIES[token] / share for token in kept}
    assert_distribution(draws(SamplingParams(temperature=1.0, top_p=top_p)), expected)


def test_top_k_comes_before_top_p() -> None:
    """Two of 0.4, 0.25, 0.2 reach 0.7 of these three's sum, but not of all tokens' sum."""
    found = draws(SamplingParams(temperature=1.0, top_k=3, top_p=0.7))
    assert_distribution(found, {1: 0.4 / 0.65, 3: 0.25 / 0.65})


def test_top_k_one_is_greedy() -> None:
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(3))
    hot = tuple(request(SamplingParams(temperature=5.0, top_k=1), seed) for seed in range(50))
    assert sample(logits, hot) == sample(logits, (request(SamplingParams()),) * 50)


def test_tiny_and_huge_temperatures_do_not_overflow() -> None:
    for tiny in (1e-30, 1e-46, 5e-324):
        assert draws(SamplingParams(temperature=tiny), num_draws=20) == {1: 20}
        assert draws(SamplingParams(temperature=tiny, top_k=3, top_p=0.9), num_draws=20) == {1: 20}
    assert draws(SamplingParams(temperature=1e30), num_draws=500).keys() == {0, 1, 2, 3, 4}
    assert draws(SamplingParams(temperature=1.0), torch.tensor([3e38, -3e38, 0.0]), num_draws=20) == {0: 20}


def test_a_token_of_no_weight_is_not_drawn_by_a_number_on_its_edge() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 1.0, 0.0]], dtype=torch.float64).expand(3, -1)
    assert pick(weights, torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)).tolist() == [1, 3, 3]


def test_a_forbidden_token_is_never_drawn() -> None:
    logits = torch.tensor([0.0, -torch.inf, 0.0])
    assert draws(SamplingParams(temperature=1.0), logits, num_draws=500).keys() == {0, 2}


def by_hand(logits: list[float], request: ScheduledRequest) -> int:
    """One row, in plain Python: sort, cut, lay end to end."""
    sampling, largest = request.sampling, max(logits)
    if sampling.temperature == 0:
        return logits.index(largest)
    weights = {token: math.exp((logit - largest) / sampling.temperature) for token, logit in enumerate(logits)}
    order = list(weights)
    if (sampling.top_k or len(logits)) < len(logits) or (sampling.top_p or 1.0) < 1.0:
        order.sort(key=lambda token: -logits[token])
    order = order[: sampling.top_k]
    total, before, kept = sum(weights[token] for token in order), 0.0, []
    for token in order:
        if before < (sampling.top_p or 1.0) * total or not kept:
            kept.append(token)
        before += weights[token]
    target = uniform(request.seed, request.end) * sum(weights[token] for token in kept)
    for token in kept:
        target -= weights[token]
        if target < 0:
            return token
    raise AssertionError("a target lies within the sum")


@pytest.mark.parametrize("seed", range(12))
def test_batches_are_drawn_as_row_by_row(seed: int) -> None:
    """Mixed parameters, many equal logits, small batches too: what a row gets does not depend on its neighbours."""
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    vocab_size, num_rows = random.choice([1, 2, 33, 500]), random.randint(1, 12)
    logits = (torch.randn(num_rows, vocab_size, generator=generator) * random.choice([0.0, 1.0, 9.0]) * 2).round() / 2
    settings = [
        SamplingParams(
            temperature=random.choice([0.0, 0.3, 1.0, 4.0]),
            top_k=random.choice([None, None, 1, 3, 40, 10**9]),
            top_p=random.choice([None, None, 0.2, 0.77, 0.99, 1.0]),
        )
        for _ in range(num_rows)
    ]
    requests = [request(setting, random.getrandbits(70), random.randint(1, 50)) for setting in settings]
    expected = [by_hand(row, one) for row, one in zip(logits.tolist(), requests, strict=True)]
    assert sample(logits, requests) == expected
    assert sample(logits.bfloat16(), requests) == expected, "halves are exact in bfloat16"


def test_many_rows_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(9, 50, generator=torch.Generator().manual_seed(1))
    requests = [request(SamplingParams(temperature=1.0, top_k=row or None), row) for row in range(9)]
    at_once = sample(logits, requests)
    monkeypatch.setitem(sampler.MAX_CELLS, "cpu", 120)
    assert sample(logits, requests) == at_once


def test_equal_logits_keep_the_lower_ids() -> None:
    assert draws(SamplingParams(temperature=1.0, top_k=2), torch.zeros(6), num_draws=60).keys() == {0, 1}
    signed_zeros = torch.tensor([-1.0, -0.0, 0.0, -0.0])
    assert draws(SamplingParams(temperature=1.0, top_k=2), signed_zeros, num_draws=60).keys() == {1, 2}


GREEDY, WARM = SamplingParams(), SamplingParams(temperature=1.0)
TOP_K, TOP_P = SamplingParams(temperature=1.0, top_k=50), SamplingParams(temperature=1.0, top_p=0.9)


@pytest.mark.parametrize(
    ("settings", "num_ops", "reads"),
    [
        ((GREEDY,), 8, 2.1),
        ((WARM,), 21, 24.1),
        ((GREEDY, WARM), 23, 15.1),
        ((TOP_K,), 46, 36.0),
        ((TOP_P,), 61, 110.0),
    ],
)
def test_ops_of_a_batch(settings: tuple[SamplingParams, ...], num_ops: int, reads: float) -> None:
    """As many for any number of rows. reads: bytes read and written, in times of the logits' own."""
    for num_rows in (4, 12):
        logits = torch.randn(num_rows, 10_000, generator=torch.Generator().manual_seed(0))
        requests = [request(settings[row % len(settings)], row) for row in range(num_rows)]
        with TorchOps() as ops:
            sampler.sample_on_device(logits, requests)
        assert len(ops.names) <= num_ops, ops.names
        assert ops.num_bytes <= reads * logits.numel() * 4
        assert ops.names.count("argmax") == (GREEDY in settings)


@pytest.mark.parametrize("sampling", [WARM, TOP_K, SamplingParams(temperature=0.7, top_k=9, top_p=0.8)])
def test_a_token_is_near_its_number_alone(sampling: SamplingParams) -> None:
    """What other tests take for a draw that rounding may explain: no neighbour of the drawn token is one."""
    logits = torch.randn(1, 60, generator=torch.Generator().manual_seed(8))
    for seed in range(10):
        requests = [request(sampling, seed)]
        drawn = sample(logits, requests)
        ids, weights = laid_out(logits[0], sampling)
        ends = weights.cumsum(0) / weights.sum()
        assert (ends - uniform(seed, 1)).abs().min() > 1e-4, "no number is near a border"
        assert [token for token in range(60) if are_drawn([token], logits, requests)] == drawn
        (place,) = (ids == drawn[0]).nonzero()[0].tolist()
        at_the_border = float(ends[place]) - uniform(seed, 1)
        if place + 1 < len(ids) and weights[place + 1] > 0:
            assert are_drawn(ids[[place + 1]].tolist(), logits, requests, at_the_border * 1.01)


@pytest.mark.gpu
@pytest.mark.parametrize("by", ["kernels", "torch"])
def test_the_gpu_draws_the_same_and_the_host_does_not_wait(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(24, 5000, generator=torch.Generator().manual_seed(2)) * 4
    settings = [SamplingParams(temperature=row % 3 / 2, top_k=40 if row % 2 else None) for row in range(24)]
    requests = [request(setting, row) for row, setting in enumerate(settings)]
    on_gpu = logits.cuda()
    # Asked before: the trial launch waits for the device, and a trial that fails would leave all of it to torch.
    assert sampler.uses_kernels(on_gpu)
    if by == "torch":
        monkeypatch.setattr(sampler, "uses_kernels", lambda logits: False)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        sampled = sampler.sample_on_device(on_gpu, requests)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    tokens = sampler.read(sampled, requests, on_gpu)
    assert tokens == sample(logits, requests) if by == "torch" else are_drawn(tokens, logits, requests)


def test_a_draw_depends_on_seed_position_and_logits_alone() -> None:
    warm = SamplingParams(temperature=1.0)
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    batch = tuple(request(warm, seed, position) for seed, position in ((0, 5), (1, 5), (0, 6), (2**70 + 3, 5)))
    together = sample(logits, batch)
    torch.rand(3)  # the global generator plays no part
    assert [sample(row.unsqueeze(0), (one,))[0] for row, one in zip(logits, batch, strict=True)] == together
    same_logits = sample(logits[:1].expand(4, -1), batch)
    assert len(set(same_logits)) == 4


def test_uniform_numbers_are_uniform_in_seed_and_in_position() -> None:
    for numbers in ([uniform(seed, 9) for seed in range(5000)], [uniform(9, position) for position in range(5000)]):
        assert all(0 <= number < 1 for number in numbers)
        tenths = Counter(int(number * 10) for number in numbers)
        assert all(400 < tenths[tenth] < 600 for tenth in range(10))
        steps = [b - a for a, b in pairwise(numbers)]
        assert sum(step > 0 for step in steps) == pytest.approx(len(steps) / 2, rel=0.1)


def test_the_stream_of_a_seed_never_changes() -> None:
    """Saved runs rest on it."""
    numbers = [uniform(seed, position) for seed, position in ((0, 0), (0, 1), (1, 0), (42, 1000))]
    assert numbers == [0.6524484863740322, 0.1663964394676608, 0.36818951565166946, 0.4575300288382993]


def test_uniform_numbers_of_a_batch_are_those_of_its_rows() -> None:
    random = Random(0)
    seeds = [0, -1, 2**64 - 1, 2**70 + 3, *(random.getrandbits(64) for _ in range(200))]
    positions = [random.randrange(2**31) for _ in seeds]
    one_by_one = [uniform(*pair) for pair in zip(seeds, positions, strict=True)]
    assert uniforms(mixed_seeds(seeds), positions).tolist() == one_by_one


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_broken_logits_name_the_request(temperature: float, value: float) -> None:
    logits = LOGITS.repeat(2, 1)
    logits[1, 3] = value
    dealer = Dealer(4, 4)
    requests = tuple(dealer.request([0], SamplingParams(temperature=temperature)).take(1) for _ in range(2))
    with pytest.raises(FloatingPointError, match=r"request 1 .*NaN"):
        sample(logits, requests)
