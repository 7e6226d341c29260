"""The costliest finding of a made traffic is its fault, with the tokens that it costs; others have none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labengine.config import SamplingParams
from labengine.core.editions import edition
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions
from labengine.engine.simulated import SimulatedRunner
from labengine.events import Event
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.look_ups.examine import examine
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from prefix_doctor import traffics
from prefix_doctor.traffics import Made


def ledger_of(made: Made) -> Ledger:
    """Run a traffic on edition vllm, one prompt after another, and judge its look-ups."""
    prompts, events, hooks = list(made.traffic), list[Event](), Hooks(strict=True)
    hooks.subscribe(events.append)

    def next_token(number: int, position: int) -> int:
        behind = position - len(prompts[number].token_ids)
        return prompts[number].answer[behind] if prompts[number].answer else 100_000 + number

    engine = Engine(made.config, SimulatedRunner(next_token), edition("vllm", "fcfs"), hooks)
    for number, prompt in enumerate(prompts):
        options = RequestOptions(SamplingParams(prompt.num_answer, ignore_eos=True), prompt.extra_keys)
        engine.queue(engine.maker.request(number, list(prompt.token_ids), options))
        while not engine.scheduler.is_idle:
            engine.step()
    salts = {number: prompt.extra_keys for number, prompt in enumerate(prompts)}
    ledger = Ledger(made.config.groups, made.config.num_blocks, made.traffic.token_text)
    for one in examine(RecordedEngine("made", Fold(), events, salts=salts)).look_ups:
        ledger.add(one.request_id, prompts[one.request_id], one)
    return ledger


@pytest.mark.parametrize("make", [one for one in traffics.FAULTY if one is not traffics.two_replicas])
def test_the_costliest_finding_is_the_fault(make: Callable[[], Made]) -> None:
    made = make()
    ledger = ledger_of(made)
    first, *others = ledger.findings()
    assert first.kind == made.kind
    assert first.num_lost == pytest.approx(made.num_lost, rel=0.02)
    assert not others
    assert first.examples and 2 <= len(first.shown) <= 6


@pytest.mark.parametrize("make", traffics.FAULTLESS)
def test_a_traffic_without_a_fault_has_no_finding(make: Callable[[], Made]) -> None:
    ledger = ledger_of(make())
    assert not ledger.findings()
    assert "(100%) are no fault" in ledger.no_fault
