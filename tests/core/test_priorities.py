"""Priorities: the waiting queue is ordered, running requests are not; the least urgent one gives way."""

from __future__ import annotations

from typing import Any

import pytest

from driving import queues, recorded, small_engine
from labengine import events as ev
from labengine.config import ConfigError, SamplingParams
from labengine.core.editions import LABENGINE, edition
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.waiting_queue import PriorityQueue, WaitingQueue
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions
from labengine.engine.workload import simulate
from labengine.record.hooks import Hooks
from labengine.session.history.broken_steps import break_off_step
from labengine.session.history.inputs import BrokenStep

EDITIONS = ("labengine", "vllm")


def engine_of(name: str, num_blocks: int = 8, hooks: Hooks | None = None, **settings: Any) -> Engine:
    return small_engine(num_blocks, edition=edition(name, "priority"), hooks=hooks, **settings)


def add(engine: Engine, prompt: range, priority: int = 0, max_tokens: int = 4, leader_id: int | None = None) -> int:
    return engine.add(prompt, RequestOptions(SamplingParams(max_tokens=max_tokens), priority=priority), leader_id)


def waiting(engine: Engine) -> list[int]:
    return queues(engine)[0]


def scheduled(events: list[ev.Event]) -> list[tuple[int, ...]]:
    """The requests that each step computes, in order: a victim of the same step is not among them."""
    steps: list[list[int]] = []
    for event in events:
        match event:
            case ev.StepStarted():
                steps.append([])
            case ev.RequestScheduled():
                steps[-1].append(event.request_id)
            case ev.RequestPreempted() if event.request_id in steps[-1]:
                steps[-1].remove(event.request_id)
    return [tuple(step) for step in steps]


# -- the waiting queue -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EDITIONS)
def test_the_most_urgent_is_admitted_first_and_equal_ones_in_order_of_arrival(name: str) -> None:
    engine = engine_of(name)
    for priority in (1, 0, -1, 1, 0):
        add(engine, range(3), priority)
    assert waiting(engine) == [2, 1, 4, 0, 3]
    assert [request.priority for request in engine.snapshot().requests.values()] == [1, 0, -1, 1, 0]


def test_without_the_policy_no_request_has_a_priority() -> None:
    engine = small_engine()
    for priority in (1, 0, -1):
        add(engine, range(3), priority)
    assert waiting(engine) == [0, 1, 2]
    assert {request.priority for request in engine.snapshot().requests.values()} == {0}
    assert "priority" not in engine.snapshot().to_dict()["requests"]["0"]


@pytest.mark.parametrize(("name", "order"), [("labengine", [*range(11)]), ("vllm", [0, 1, 10, *range(2, 10)])])
def test_of_those_that_arrive_together_vllm_compares_the_ids_as_texts(name: str, order: list[int]) -> None:
    requests = [{"step": 0, "prompt": [1], "max_tokens": 1, "priority": 1, "arrival": 0} for _ in range(11)]
    limits = {"num_blocks": 9, "block_size": 4, "max_num_seqs": 1, "max_num_batched_tokens": 4}
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    simulate(limits | {"policy": "priority", "requests": requests}, name, hooks=hooks)
    assert [step[0] for step in scheduled(events)] == order


@pytest.mark.parametrize("name", EDITIONS)
def test_several_answers_arrive_together(name: str) -> None:
    engine = engine_of(name)
    leader = add(engine, range(3), 1)
    add(engine, range(3), 1, leader_id=leader)
    add(engine, range(3), 1)
    assert [request.arrival for request in engine.requests.values()] == [0, 0, 2]


def test_a_sibling_of_an_aborted_leader_waits_where_its_priority_puts_it() -> None:
    engine = engine_of("labengine", max_num_seqs=2)
    leader = add(engine, range(3), 1)
    sibling = add(engine, range(3), 1, leader_id=leader)
    urgent = add(engine, range(5), 0)
    engine.abort(leader)
    assert waiting(engine) == [urgent, sibling]


def test_a_branch_has_the_priority_of_its_parent() -> None:
    engine = engine_of("labengine", max_num_seqs=1)
    parent = add(engine, range(3), 3)
    engine.step()
    branch = engine.branch(parent)
    assert engine.requests[branch].priority == 3


# -- running requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EDITIONS)
def test_an_urgent_request_comes_last_in_a_step_when_it_was_admitted_last(name: str) -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = engine_of(name, hooks=hooks)
    add(engine, range(3), 5)
    engine.step()
    add(engine, range(20, 23), -5)
    engine.step()
    assert scheduled(events) == [(0,), (0, 1)]


@pytest.mark.parametrize("name", EDITIONS)
def test_no_request_is_preempted_to_admit_another(name: str) -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = engine_of(name, hooks=hooks, max_num_seqs=1)
    add(engine, range(7), 9)
    engine.step()
    add(engine, range(10, 17), 0)
    while not engine.scheduler.is_idle:
        engine.step()
    assert scheduled(events) == [(0,)] * 4 + [(1,)] * 4
    assert not any(isinstance(event, ev.RequestPreempted) for event in events)


@pytest.mark.parametrize("name", EDITIONS)
def test_the_least_urgent_gives_way_wherever_it_runs(name: str) -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = engine_of(name, 6, hooks=hooks)
    for priority in (2, 0, 1):
        add(engine, range(10 * priority, 10 * priority + 7), priority, max_tokens=8)
    engine.step()
    assert queues(engine)[1] == [1, 2, 0], "admitted in the order of the queue"
    engine.step()
    engine.step()
    assert [event.request_id for event in events if isinstance(event, ev.RequestPreempted)] == [0]
    assert scheduled(events)[-1] == (1, 2)
    assert queues(engine)[:2] == ([0], [1, 2])


@pytest.mark.parametrize(("name", "victim"), [("labengine", 2), ("vllm", 1)])
def test_of_equal_ones_the_last_gives_way_and_in_vllm_the_first(name: str, victim: int) -> None:
    """vLLM takes Python's max() of the running requests: with equal priority and arrival, the one admitted first."""
    prompts = [[10 * number + i for i in range(7)] for number in range(3)]
    requests = [{"step": 0, "prompt": prompt, "max_tokens": 8} for prompt in prompts]
    requests = [request | {"priority": int(number > 0), "arrival": 0} for number, request in enumerate(requests)]
    limits = {"num_blocks": 6 + (name == "vllm"), "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 32}
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    simulate(limits | {"policy": "priority", "requests": requests}, name, hooks=hooks)
    assert next(event.request_id for event in events if isinstance(event, ev.RequestPreempted)) == victim


@pytest.mark.parametrize("name", EDITIONS)
def test_a_victim_that_this_step_has_scheduled_returns_its_tokens_to_the_budget(name: str) -> None:
    """A's third chunk is scheduled, then B needs a block, and takes A's: C gets all its eight tokens, and not seven."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = engine_of(name, 10, hooks=hooks, long_prefill_token_threshold=8, budget=16)
    add(engine, range(100, 132), 5, max_tokens=1)
    engine.step()
    add(engine, range(200, 204), 0, max_tokens=3)
    add(engine, range(300, 312), 0, max_tokens=3)
    engine.step()
    del events[:]
    engine.step()
    shares = [(event.request_id, event.num_tokens) for event in events if isinstance(event, ev.RequestScheduled)]
    assert shares == [(0, 8), (1, 1), (2, 8)] and scheduled(events) == [(1, 2)]


@pytest.mark.parametrize("name", EDITIONS)
def test_a_request_that_gives_way_itself_ends_the_pass(name: str) -> None:
    """The step is empty, though the two behind it have their blocks."""
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = engine_of(name, 7, hooks=hooks, long_prefill_token_threshold=8, budget=12)
    add(engine, range(100, 124), 5, max_tokens=1)
    engine.step()
    add(engine, range(200, 203), 0, max_tokens=6)
    add(engine, range(210, 213), 0, max_tokens=6)
    while not any(isinstance(event, ev.RequestPreempted) for event in events):
        engine.step()
    assert scheduled(events)[-1] == () and queues(engine)[:2] == ([0], [1, 2])


def test_a_step_that_is_broken_off_leaves_the_queue_as_it_was() -> None:
    engine = engine_of("labengine", 6)
    for priority in (2, 0, 1):
        add(engine, range(10 * priority, 10 * priority + 7), priority, max_tokens=8)
    for _ in range(6):
        before = queues(engine)
        break_off_step(engine, BrokenStep(engine.num_finished_steps, "schedule", "KeyboardInterrupt"))
        assert queues(engine) == before
        engine.step()


# -- a queue of one's own, and what is refused -------------------------------------------------------------------------


class ShortestFirst(PriorityQueue):
    def priority(self, request: Request) -> int:
        return request.num_prompt_tokens


def test_a_queue_of_ones_own_sets_priorities_and_the_events_have_them() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(edition=Parts(waiting_queue=ShortestFirst).overriding(LABENGINE), hooks=hooks)
    for length in (5, 2, 3):
        add(engine, range(length))
    assert waiting(engine) == [1, 2, 0]
    assert [event.priority for event in events if isinstance(event, ev.RequestAdded)] == [5, 2, 3]


@pytest.mark.parametrize("wrong", ["x", None, 1.5, 2**31])
def test_a_priority_that_is_no_number_is_refused_before_the_request_is_kept(wrong: Any) -> None:
    class Wrong(WaitingQueue):
        def priority(self, request: Request) -> int:
            result: int = wrong
            return result

    engine = small_engine(edition=Parts(waiting_queue=Wrong).overriding(LABENGINE))
    with pytest.raises(ConfigError, match=r"Wrong\.priority must be"):
        add(engine, range(3))
    assert not engine.requests
    with pytest.raises(ConfigError, match="priority must be"):
        add(small_engine(), range(3), wrong)


def test_what_knows_no_priorities_refuses_the_policy() -> None:
    with pytest.raises(ConfigError, match=r"edition 'nano-vllm' .* priorities: use edition 'labengine' or 'vllm'"):
        edition("nano-vllm", "priority")
    with pytest.raises(ConfigError, match=r"policy must be 'fcfs' .* or 'priority', got 'urgent'"):
        edition("vllm", "urgent")
