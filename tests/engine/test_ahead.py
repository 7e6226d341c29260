"""An engine that schedules ahead shows the same as one that does not, through the same disturbances.

They run the same workload side by side on memories that check each read. Tokens, block ids, events, reports and states
are equal after every operation. Between most of them the engine that is ahead is not read, because a read ends it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from disturbing import raise_at_event
from driving import difference, recorded, small_engine
from engine.twins import GROUNDS, Twins, ahead_engine
from grounds import Ground, at_every_change
from labengine.config import SamplingParams
from labengine.core.editions import EDITIONS
from labengine.engine.ahead import OverlappedEngine
from labengine.engine.engine import Engine
from labengine.events import RequestFinished, StepFailed
from labengine.record.hooks import Hooks
from seeds import EVERY_SEED
from workloads import Workload

NUM_SEEDS = 60


def workload_with_eos(ground: Ground, seed: int) -> Workload:
    """Half of the workloads have a token that ends a request, at which most of its tokens may be missing."""
    workload, rng = ground.workload(seed), Random(seed)
    if rng.random() < 0.5:
        return workload
    wanted = rng.choice(workload.requests)
    position = len(wanted.prompt) + rng.randrange(wanted.max_tokens)
    eos = workload.next_token(workload.requests.index(wanted), position)
    return replace(workload, settings={**workload.settings, "eos_token_ids": frozenset({eos})})


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "silent"])
@pytest.mark.parametrize("disturbances", [0.0, 0.1])
@pytest.mark.parametrize("ground", at_every_change(GROUNDS), ids=str)
def test_results_are_equal(ground: Ground, disturbances: float, is_recorded: bool) -> None:
    met: Counter[str] = Counter()
    for seed in ground.seeds(NUM_SEEDS):
        twins = Twins(workload_with_eos(ground, seed), EDITIONS[ground.edition], is_recorded=is_recorded)
        twins.run(Random(seed), disturbances)
        met += twins.met
    assert met["used"] > (100 if EVERY_SEED else 50)
    assert min(met["did not come true"], met["preempted ahead"]) >= (6 if EVERY_SEED else 1)
    assert met["not anticipated"] == 0 and bool(met["with beams"]) == (ground.has_forks and ground.edition != "vllm")
    if not disturbances:
        unused = met["not used"] - met["with beams"] - met["without tokens"]  # nothing is anticipated behind those
        assert met["used"] > 3 * unused


def test_the_next_step_is_scheduled_before_the_tokens_are_sampled() -> None:
    """The point of it all: when sample() is asked, nothing is left to do but to fill in."""
    engine = ahead_engine()
    order: list[str] = []
    for owner, name in ((engine.scheduler, "schedule"), (engine.scheduler, "update"), (engine.runner, "forward")):
        noting(owner, name, order)
    noting(engine.runner, "sample", order)
    engine.step()
    engine.step()
    assert order == ["schedule", *("forward", "update", "schedule", "sample") * 2]


def noting(owner: object, name: str, order: list[str]) -> None:
    method = getattr(owner, name)

    def noted(*arguments: object) -> object:
        order.append(name)
        return method(*arguments)

    setattr(owner, name, noted)


def test_an_eos_takes_back_what_was_anticipated() -> None:
    """At position 5 request 0 samples the eos: it has ended there, and in no later step."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(eos=frozenset({7}), next_token=lambda i, position: 7 if (i, position) == (0, 5) else 1)
    engine = OverlappedEngine(engine.config, engine.runner, EDITIONS["labengine"], hooks)
    engine.add([1, 2, 3], SamplingParams(max_tokens=10))
    engine.add([1, 2, 3], SamplingParams(max_tokens=10))
    while engine.step():
        pass
    assert engine.requests[0].token_ids == [1, 2, 3, 1, 1, 7]
    assert engine.requests[1].num_generated_tokens == 10
    assert [e for e in events if isinstance(e, RequestFinished)] == [
        RequestFinished(0, "stop"),
        RequestFinished(1, "length"),
    ]


@pytest.mark.parametrize("engine_class", [Engine, OverlappedEngine])
@pytest.mark.parametrize("n", [0, 5, 12])
def test_a_listeners_exception_is_no_parts(engine_class: type[Engine], n: int) -> None:
    """Whichever part has emitted the event, and whether it was held back or not."""
    engine = ahead_engine(engine_class)
    engine.step()
    events = recorded(engine.hooks)
    with raise_at_event(engine.hooks, n, ValueError), pytest.raises(ValueError):
        engine.step()
    assert [event.method for event in events if isinstance(event, StepFailed)] == ["a listener"]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3, 4]])
def test_too_few_or_too_many_tokens_are_an_error(tokens: list[int]) -> None:
    engine = ahead_engine()
    before = engine.snapshot()
    engine.runner.sample = lambda plan, logits: tokens  # type: ignore[method-assign]
    with pytest.raises((RuntimeError, ValueError)):
        engine.step()
    assert difference(engine.snapshot(), before) is None
