"""A step plan as the numbers that WebAssembly reads, beside the tensors of the same plan."""

from __future__ import annotations

from array import array
from dataclasses import replace
from random import Random

import pytest
import torch

from engine.plan_builder import Dealer, plan_of
from labengine.config import ConfigError, GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.rope import RopeSpec
from labengine.engine.step_tensors import step_tensors
from labengine.engine.wasm.runner import Floats, packed_plan
from labengine.engine.wasm.weights import LlamaSizes, inverse_frequencies


def random_plan(random: Random, block_size: int) -> StepPlan:
    dealer = Dealer(200, block_size, seed=random.randrange(100))
    requests = [dealer.request([random.randrange(9_999) for _ in range(random.randrange(1, 40))]) for _ in range(4)]
    for request in requests:
        request.num_computed = random.randrange(len(request.token_ids))
    return plan_of(*(request.take(random.choice((1, 9, 40)), samples=random.random() < 0.7) for request in requests))


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_the_numbers_are_those_of_the_tensors(block_size: int) -> None:
    random = Random(block_size)
    for _ in range(50):
        plan = random_plan(random, block_size)
        tensors = step_tensors(plan, [GroupSpec(block_size)], torch.device("cpu"))
        counts, stride, inputs = packed_plan(plan.scheduled, block_size)
        ids, positions, slots, starts, contexts, tables, rows = map(array.tolist, inputs)
        assert counts == (plan.num_tokens, 4, len(plan.sampling))
        assert (ids, positions) == (tensors.token_ids.tolist(), tensors.positions.tolist())
        assert (starts, contexts) == (tensors.query_starts.tolist(), tensors.contexts.tolist())
        assert (slots, rows) == (tensors.groups[0].slots.tolist(), tensors.sample_rows.tolist())
        for number, request in enumerate(plan.scheduled):
            needed = -(-request.end // block_size)
            row = tables[number * stride : (number + 1) * stride]
            assert row[:needed] == tensors.groups[0].block_tables[number, :needed].tolist()


def test_what_would_read_or_write_wrong_slots_is_refused() -> None:
    (request,) = plan_of(Dealer(8, 4).request(list(range(9))).take(9)).scheduled
    short = replace(request, block_tables=(request.block_tables[0][:2],))
    with pytest.raises(ValueError, match="too short"):
        packed_plan([short], 4)
    with pytest.raises(ValueError, match="too short"):
        packed_plan([replace(request, slot_runs=(request.slot_runs[0][:-1],))], 4)
    with pytest.raises(ConfigError, match="one KV-cache group"):
        packed_plan([replace(request, block_tables=request.block_tables * 2)], 4)


def test_frequencies_are_those_of_torch() -> None:
    for head_dim, theta in ((64, 100_000.0), (128, 10_000.0), (48, 500_000.0)):
        sizes = LlamaSizes(1, 1, 1, 1, 1, head_dim, 1, 1, 1e-5, theta, frozenset())
        theirs = RopeSpec(theta).inverse_frequencies(head_dim)
        assert torch.equal(torch.tensor(inverse_frequencies(sizes)), theirs)


def test_floats_read_like_a_tensor() -> None:
    tensor = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(1))
    floats = Floats(tensor.numpy().tobytes(), (4, 3, 8))
    assert floats.shape == tuple(tensor.shape) and floats.nbytes == tensor.nbytes
    assert floats.tolist() == tensor.tolist() and floats[1, 2, 5] == tensor[1, 2, 5].item()
    assert floats == Floats(floats.content, floats.shape) != Floats(floats.content, (3, 4, 8))
