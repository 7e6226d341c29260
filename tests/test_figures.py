"""The figures of a run say what its state says: on recorded vLLM runs with connectors, which pin, defer and copy."""

from __future__ import annotations

from typing import Any

import pytest

from differential import vllm_streams
from labengine import events as ev
from labengine.record.figures import Counter, RunFigures, counted
from labengine.vllm.conformance.against import cost_of
from stream.test_connector_streams import piece_of

RUNS = list(vllm_streams.read(vllm_streams.CONNECTOR_PATH))


@pytest.mark.parametrize("items", [items for _, items in RUNS], ids=map(str, vllm_streams.RECORDED_CONNECTOR_SEEDS))
def test_blocks_in_use_are_those_of_the_state(items: list[dict[str, Any]]) -> None:
    timeline = piece_of(items).timeline
    state, peak = timeline.state(timeline.num_dropped), 0
    for event in timeline.events():
        state.apply(event)
        peak = max(peak, state.num_used_blocks)
    assert peak <= len(state.ref_counts)
    assert cost_of(timeline.events()).peak_blocks == peak


def test_a_step_that_is_rolled_back_does_not_count() -> None:
    begun = [ev.EngineStarted(4, (("full", 2, None),), "labengine"), ev.RequestAdded(0, (1, 2, 3), 4)]
    step = [ev.StepStarted(1), ev.PrefixHit(0, 2, ((0,),)), ev.RequestScheduled(0, 2, 1, True, "running")]
    ends = [ev.ForwardRan(1, 1), ev.TokenSampled(0, 5, 3), ev.StepEnded(1)]
    once = RunFigures(
        num_requests=1,
        num_forward_passes=1,
        num_computed=1,
        num_prefill=1,
        num_sampled=1,
        num_hit=2,
        num_hit_of_prompts=2,
        num_looked_up=3,
    )
    assert counted([*begun, *step, *ends]) == once
    assert counted([*begun, *step, ev.ForwardRan(1, 1), ev.StepRolledBack(1, "RuntimeError"), *step, *ends]) == once
    assert counted([*begun, *step, *ends, ev.StepRolledBack(2, "of a step that is not among the events")]) == once


def test_a_counter_that_begins_late_is_given_the_prompts() -> None:
    hit = ev.PrefixHit(0, 2, ((0,),))
    known, unknown = Counter(prompt_lengths={0: 4}), Counter()
    known.note(hit)
    unknown.note(hit)
    assert (known.figures.hit_rate, unknown.figures.hit_rate) == (0.5, 0.0)
