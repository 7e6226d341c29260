"""A prefix tree under a real model: the tokens are those of a pool in which nothing is evicted or preempted."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import pytest

from driving import num_reserved_blocks
from labengine import model_path
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition as edition_named
from labengine.engine.engine import Engine
from labengine.engine.model_runner import ModelRunner
from labengine.events import NodeEvicted
from labengine.record.hooks import Hooks

NUM_SLOTS = 512
TREES = (("labengine-radix", 1), ("labengine-radix", 16), ("mini-sglang+142", 1))
ALL_TREES = (*TREES, ("sglang", 1), ("sglang", 16))
"""(edition, block size). With larger blocks mini-sglang admits more than fits: it counts prompts in tokens."""


class Traffic(NamedTuple):
    """Prompts, the new tokens of each, and the tokens that the small pool can hold."""

    prompts: list[list[int]]
    max_tokens: int
    num_slots: int
    budget: int


def traffic(seed: int) -> Traffic:
    """Prompts that share beginnings, one a step, for a pool that holds hardly more than the longest of them."""
    rng = Random(seed)
    stems = [[rng.randrange(300, 40_000) for _ in range(rng.randint(17, 36))] for _ in range(2)]
    prompts = []
    for _ in range(5):
        stem = rng.choice(stems)
        kept = stem[: rng.randint(len(stem) // 2, len(stem))]
        prompts.append([*kept, *(rng.randrange(300, 40_000) for _ in range(rng.randint(1, 12)))])
    max_tokens = rng.randint(2, 5)
    longest = max(map(len, prompts)) + max_tokens
    return Traffic(prompts, max_tokens, longest + rng.choice((0, 8, 16)), rng.choice((16, 64)))


@pytest.fixture(scope="module")
def runners() -> dict[int, ModelRunner]:
    return {size: runner_of(size) for size in (1, 16)}


def runner_of(block_size: int) -> ModelRunner:
    num_blocks = NUM_SLOTS // block_size
    path = model_path("smollm2")
    return ModelRunner.load(path, num_blocks=num_blocks, block_size=block_size, dtype="float32", device="cpu")


def tokens_of(edition: str, runner: ModelRunner, block_size: int, given: Traffic) -> tuple[list[list[int]], int]:
    """Return each request's tokens, and how many nodes were evicted."""
    hooks, evicted = Hooks(strict=True), list[NodeEvicted]()
    hooks.subscribe(evicted.append, NodeEvicted)
    num_blocks = -(-given.num_slots // block_size) + num_reserved_blocks(edition_named(edition))
    config = EngineConfig(num_blocks, (GroupSpec(block_size),), 8, given.budget)
    engine = Engine(config, runner, edition_named(edition), hooks)
    for prompt in given.prompts:
        engine.add(prompt, SamplingParams(max_tokens=given.max_tokens, ignore_eos=True))
        engine.step()
    while engine.step():
        pass
    return [request.token_ids for request in engine.requests.values()], len(evicted)


@pytest.mark.parametrize(
    ("num_traffics", "trees"), [(3, TREES), pytest.param(200, ALL_TREES, marks=pytest.mark.sweep)], ids=["3", "200"]
)
def test_tokens_are_those_of_the_unconstrained_run(
    num_traffics: int, trees: Sequence[tuple[str, int]], runners: dict[int, ModelRunner]
) -> None:
    num_evicting = dict.fromkeys(trees, 0)
    for seed in range(num_traffics):
        given = traffic(seed)
        expected, _ = tokens_of("labengine", runners[16], 16, given._replace(num_slots=NUM_SLOTS))
        for edition, size in num_evicting:
            found, num_evicted = tokens_of(edition, runners[size], size, given)
            assert found == expected, f"seed {seed}, {edition}, blocks of {size}"
            num_evicting[edition, size] += num_evicted > 0
    print(num_evicting)
    assert min(num_evicting.values()) > num_traffics // 2
