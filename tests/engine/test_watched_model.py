"""The watch beside a real model: it changes nothing, and what it finds is really wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from check.mutations import NO_REMAP
from driving import as_parts
from labengine.check.watch import Watch
from labengine.config import EngineConfig, SamplingParams
from labengine.core.parts import Parts
from labengine.engine.engine import Engine
from labengine.engine.external import HostStore
from labengine.engine.model_runner import ModelRunner
from labengine.record.hooks import Hooks

PROMPTS = [[*range(3, 24)], [*range(3, 24)], [*range(40, 61)], [*range(3, 35)], [*range(3, 20), 90, 91]]


@pytest.fixture
def runner(tiny_gemma: Path) -> ModelRunner:
    return ModelRunner.load(tiny_gemma, num_blocks=60, block_size=4, dtype="float32", device="cpu")


def play(runner: ModelRunner, parts: Parts, watch: Watch | None, hooks: Hooks) -> list[list[int]]:
    """Five prompts, one after another joining in a pool for two or three of them, with an external tier behind it.

    Returns their tokens, as far as they came: an engine that frees a block twice breaks down.
    """
    store = HostStore()
    store.bind(runner.fingerprint)
    config = EngineConfig(60, runner.groups, max_num_seqs=3, max_num_batched_tokens=24)
    engine = Engine(config, runner if watch is None else watch.wrap(runner), parts, hooks, store)
    if watch is not None:
        watch.follow(engine)
    with suppress(RuntimeError):
        for prompt in PROMPTS:
            engine.add(prompt, SamplingParams(max_tokens=10, ignore_eos=True))
            engine.step()
        while engine.step():
            pass
    return [request.token_ids for request in engine.requests.values()]


def test_a_watched_model_says_the_same_and_nothing_is_found(runner: ModelRunner) -> None:
    hooks = Hooks(strict=True)
    watch = Watch(hooks)
    parts = as_parts("labengine")
    assert play(runner, parts, watch, hooks) == play(runner, parts, None, Hooks())
    assert watch.violations == []


def test_where_the_oracle_sees_a_misread_the_text_goes_wrong(runner: ModelRunner) -> None:
    """Late merge without remap, on the groups of full attention."""
    hooks = Hooks(strict=True)
    watch = Watch(hooks)
    right = play(runner, as_parts("labengine"), None, Hooks())
    wrong = play(runner, NO_REMAP.overriding(as_parts("labengine")), watch, hooks)
    assert "read" in {violation.rule for violation in watch.violations}
    assert any(tokens != expected[: len(tokens)] for tokens, expected in zip(wrong, right, strict=False))
