"""Traffic on the exact scheduler: its hits are simulate()'s, and its causes are those of the recorded events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from labengine import events as ev
from labengine import simulate
from labengine.config import EngineConfig, GroupSpec
from labengine.core.editions import edition
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.play.player import Played, play
from labengine.prefix_doctor.play.setting import Routing, Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks

FULL, WINDOW, STATES = (
    (GroupSpec(4),),
    (GroupSpec(4), GroupSpec(4, "sliding_window", 10)),
    (GroupSpec(4), GroupSpec(4, "state")),
)


def some_prompts(seed: int) -> list[Prompt]:
    """Prompts that begin with parts of earlier ones, some under a salt."""
    rng = Random(seed)
    prompts = list[Prompt]()
    for number in range(rng.randrange(4, 25)):
        base = list(rng.choice(prompts).token_ids) if prompts and rng.random() < 0.75 else []
        tokens = base[: rng.randrange(len(base) + 1)] + [rng.randrange(50) for _ in range(rng.randrange(1, 14))]
        salt = (("cache_salt", "s"),) if rng.random() < 0.15 else ()
        prompts.append(Prompt(str(number), tokens, num_answer=rng.choice((1, 1, 3, 9)), extra_keys=salt))
    return prompts


def traffic_of(prompts: list[Prompt]) -> Traffic:
    return Traffic("some prompts", lambda: iter(prompts))


def setting_of(seed: int, groups: tuple[GroupSpec, ...] = FULL, name: str = "vllm", **more: Any) -> Setting:
    rng = Random(seed)
    sizes = {"num_blocks": rng.randrange(40, 90), "max_num_seqs": rng.randrange(1, 5)}
    config = EngineConfig(**sizes, groups=groups, max_num_batched_tokens=rng.randrange(16, 64))
    return Setting(config, edition(name), **more)


def played(prompts: list[Prompt], setting: Setting, hooks: Hooks | None = None) -> tuple[Played, list[LookUp]]:
    look_ups = list[LookUp]()
    return play(traffic_of(prompts), setting, lambda number, prompt, one: look_ups.append(one), hooks=hooks), look_ups


@pytest.mark.parametrize("groups", (FULL, WINDOW, STATES), ids=("full", "window", "states"))
def test_look_ups_and_causes_equal_those_of_the_recorded_events(groups: tuple[GroupSpec, ...]) -> None:
    for seed in range(12):
        prompts, hooks, events = some_prompts(seed), Hooks(), list[ev.Event]()
        hooks.subscribe(events.append)
        _, look_ups = played(prompts, setting_of(seed, groups), hooks)
        salts = {number: prompt.extra_keys for number, prompt in enumerate(prompts)}
        told = examine(RecordedEngine("", Fold(), events, salts=salts)).look_ups
        assert [figures(one) for one in look_ups] == [figures(one) for one in told], seed


def figures(one: LookUp) -> tuple[object, ...]:
    """What has to be equal: of the block that is shared in part, live look-ups know one partner only."""
    causes = [
        (miss.cause, miss.start, miss.end) for miss in one.misses if miss.cause not in ("new", "short_of_a_block")
    ]
    losses = [miss.loss and (miss.loss.reason, miss.loss.step, miss.loss.request_id) for miss in one.misses]
    return one.request_id, one.number, one.step, one.num_tokens, one.num_hit, causes, [loss for loss in losses if loss]


def test_hits_and_steps_equal_those_of_simulate() -> None:
    for seed in range(20):
        prompts, setting = [replace(one, answer=()) for one in some_prompts(seed)], setting_of(seed)
        rng = Random(seed)
        timed = [replace(one, arrival=float(step)) for one, step in zip(prompts, steps(rng), strict=False)]
        for traffic in (prompts, timed):
            hits, hooks = dict[int, int](), Hooks()
            hooks.subscribe(lambda event, hits=hits: hits.setdefault(event.request_id, event.num_tokens), ev.PrefixHit)
            snapshots = simulate(workload_of(traffic, setting), "vllm", hooks=hooks)
            found, look_ups = played(traffic, setting)
            assert {one.request_id: one.num_hit for one in look_ups if one.is_first} == hits, seed
            assert (found.figures.num_steps, found.figures.num_hit) == (len(snapshots), sum(hits.values())), seed


def steps(rng: Random) -> Iterator[int]:
    step = 0
    while True:
        yield step
        step += rng.choice((0, 0, 1, 5))


def workload_of(prompts: list[Prompt], setting: Setting) -> dict[str, Any]:
    sizes = ("num_blocks", "max_num_seqs", "max_num_batched_tokens")
    requests = [
        {"step": int(one.arrival or 0), "prompt": list(one.token_ids), "max_tokens": one.num_answer}
        | ({"salt": one.extra_keys[0][1]} if one.extra_keys else {})
        for one in prompts
    ]
    return {**{name: getattr(setting.config, name) for name in sizes}, "block_size": 4, "requests": requests}


SAME = [
    Prompt(str(number), list(range(number % 3 * 40, number % 3 * 40 + 40)), tenant=str(number % 3))
    for number in range(9)
]


@pytest.mark.parametrize(("routing", "num_hit"), (("round_robin", 3), ("sticky", 6), ("prefix", 6), ("recorded", 3)))
def test_routing(routing: Routing, num_hit: int) -> None:
    spaced = [replace(one, arrival=10.0 * number, replica=number) for number, one in enumerate(SAME)]
    setting = setting_of(1, num_replicas=2, routing=routing)
    _, look_ups = played(spaced, setting)
    assert sum(one.num_hit > 0 for one in look_ups) == num_hit
    lost = {miss.cause for one in look_ups for miss in one.misses}
    assert ("other_replica" in lost) == (routing in ("round_robin", "recorded"))


def test_an_interrupt_keeps_what_is_known_if_wanted() -> None:
    def interrupted() -> Iterator[Prompt]:
        yield from SAME
        raise KeyboardInterrupt

    traffic = Traffic("", interrupted)
    found = play(traffic, setting_of(1), keeps_partial=True)
    assert found.is_partial
    assert found.figures.num_prompts == len(SAME)
    with pytest.raises(KeyboardInterrupt):
        play(traffic, setting_of(1))


def test_a_prompt_that_never_fits_is_refused_and_the_others_run() -> None:
    found, look_ups = played([SAME[0], Prompt("long", list(range(2000))), SAME[0]], setting_of(1))
    assert (found.num_refused, found.figures.num_prompts, len(look_ups)) == (1, 2, 2)
    assert "prompt 1" in found.why_refused
