"""The runner of a page over memory without kernels: what is taken, given back, read, written and refused."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from engine.plan_builder import Dealer, plan_of
from engine.wasm.fake_kernels import FakeKernels
from labengine.config import ConfigError, SamplingParams
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.step_limits import StepLimits
from labengine.engine.wasm.memory import Memory
from labengine.engine.wasm.runner import PageRunner
from labengine.engine.wasm.weights import LayerWeights, LlamaSizes, PageWeights

SIZES = LlamaSizes(2, 8, 16, 2, 1, 4, 32, 64, 1e-5, 10_000.0, frozenset({0}))
BLOCK_BYTES = 2 * 2 * 4 * 4 * 4
"""Two layers, K and V, four tokens, a head of four floats."""


@pytest.fixture
def kernels() -> FakeKernels:
    return FakeKernels()


@pytest.fixture
def weights(kernels: FakeKernels) -> PageWeights:
    layers = (LayerWeights(1, 2, 3, 4, 5, 6),) * 2
    return PageWeights("tiny", "0" * 64, Memory(kernels), SIZES, 7, 8, 9, layers, {})


@pytest.fixture
def runner(weights: PageWeights) -> PageRunner:
    return PageRunner(weights, 6, 4, StepLimits(2, 8, 24))


def scheduled(num_tokens: int = 8) -> ScheduledRequest:
    return Dealer(6, 4).request(list(range(num_tokens))).take(num_tokens)


def test_blocks_are_written_and_read_bit_by_bit(runner: PageRunner) -> None:
    before = runner.read_block(0, 3)
    assert before["kv"].shape == (2, 2, 4, 1, 4) and before["kv"].nbytes == BLOCK_BYTES
    content = bytes(range(1, 1 + 256 - 1)) * 2
    changed = {"kv": type(before["kv"])(content[:BLOCK_BYTES], before["kv"].shape)}
    runner.write_block(0, 3, changed)
    assert runner.read_block(0, 3) == changed
    assert runner.read_block(0, 2) == runner.read_block(0, 4) == before, "and no other block"
    keys, values = runner.kv(3, 1)
    assert keys.content + values.content == content[BLOCK_BYTES // 2 : BLOCK_BYTES]


def test_a_block_is_copied_bit_by_bit(runner: PageRunner) -> None:
    before = runner.read_block(0, 3)
    changed = {"kv": type(before["kv"])((bytes(range(1, 255)) * 2)[:BLOCK_BYTES], before["kv"].shape)}
    runner.write_block(0, 3, changed)
    runner.copy_block(0, 3, 5)
    assert runner.read_block(0, 5) == runner.read_block(0, 3) == changed
    assert runner.read_block(0, 4) == before, "and no other block"


def test_the_likeliest_tokens_of_beams_are_those_of_their_rows(
    runner: PageRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    dealer = Dealer(6, 4)
    one, beam = (dealer.request([5, 6, 7]).take(3) for _ in range(2))
    beam = replace(beam, sampling=SamplingParams(beams=2))
    plan = StepPlan((one, beam))
    rows = [[9.0, 0.0, 0.0], [log(0.25), log(0.5), log(0.25)]]
    logits = runner.forward(plan)
    monkeypatch.setattr(runner._program, "logits", rows.__getitem__)
    ((first, second),) = runner.likeliest(plan, logits, 2)
    assert first == pytest.approx((1, log(0.5))) and second == pytest.approx((0, log(0.25))), "of equals the lower id"


def test_a_fork_takes_its_token_from_its_leaders_logits(runner: PageRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    dealer = Dealer(6, 4)
    one, leader = (dealer.request([5, 6, 7]).take(3) for _ in range(2))
    fork = replace(leader, request_id=9, token_ids=(), start=3, slot_runs=((),))
    plan = StepPlan((one, leader), forks=((leader.request_id, fork),))
    logits = runner.forward(plan)
    monkeypatch.setattr(runner._program, "argmax", lambda num_rows: ([10, 11][:num_rows], [1] * num_rows))
    assert plan.logits_rows == [0, 1, 1] and runner.sample(plan, logits) == [10, 11, 11]


def test_two_runners_have_pools_of_their_own_and_give_them_back(kernels: FakeKernels, weights: PageWeights) -> None:
    one, other = (PageRunner(weights, 6, 4, StepLimits(2, 8, 24)) for _ in range(2))
    block = one.read_block(0, 0)
    one.write_block(0, 0, {"kv": type(block["kv"])(b"\x01" * BLOCK_BYTES, block["kv"].shape)})
    assert other.read_block(0, 0) == block
    for _ in range(3):
        one.forward(plan_of(scheduled()))  # each wants more scratch memory than the one before
    one.release()
    one.release()
    other.release()
    assert kernels.taken == {}


def test_a_pool_that_does_not_fit_leaves_nothing_behind(kernels: FakeKernels, weights: PageWeights) -> None:
    with pytest.raises(ConfigError, match="this page has no 2 MiB of memory left"):
        PageRunner(weights, 8_000, 4, StepLimits(2, 8, 24))
    assert kernels.taken == {}


def test_steps_beyond_the_buffers_or_the_pool_are_refused(runner: PageRunner, kernels: FakeKernels) -> None:
    request, before = scheduled(), bytes(kernels.memory)
    block = request.slot_runs[0][0][0]
    wrong = {
        "a step of 9 tokens of 1 requests is beyond max_num_batched_tokens=8": [scheduled(9)],
        "of 3 requests is beyond": [scheduled(1)] * 3,
        "a block that does not exist: the pool has 0 to 5": [
            replace(request, slot_runs=(((6, 0, 4), *request.slot_runs[0][1:]),))
        ],
        "a block that does not exist": [replace(request, block_tables=((block, -1),))],
    }
    for words, plan in wrong.items():
        with pytest.raises(ValueError, match=words):
            runner.forward(plan_of(*plan))
    assert kernels.memory == before
    for kv, words in ((None, "there is no KV to write to block 1"), ({"kv": runner.kv(0, 0)[0]}, "does not fit")):
        with pytest.raises(ValueError, match=words):
            runner.write_block(0, 1, kv)
    with pytest.raises(IndexError, match="block 6 does not exist"):
        runner.read_block(0, 6)


def test_kernels_of_another_version_are_refused(kernels: FakeKernels) -> None:
    kernels.memory[64] ^= 1
    with pytest.raises(ConfigError, match="of another version than its Python"):
        Memory(kernels)
