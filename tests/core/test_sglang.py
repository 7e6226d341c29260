"""Decisions of the edition sglang that its comparison with upstream leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from disturbing import ListenerFailed, raise_at_event
from driving import small_engine
from labengine import Lab
from labengine.check.slot_memory import SlotMemory
from labengine.config import ConfigError, SamplingParams
from labengine.core.editions import MINI_SGLANG, MINI_SGLANG_142, SGLANG
from labengine.core.parts import Parts, parts_of
from labengine.core.request import Request
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.core.waiting_queue import PriorityQueue, WaitingQueue
from labengine.engine.engine import Engine
from labengine.finder.state_key import attributes_of, state_key


def scheduler_of(engine: Engine) -> SglangScheduler:
    assert isinstance(engine.scheduler, SglangScheduler)
    return engine.scheduler


def test_a_step_holds_at_least_a_block() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens must be at least the block size, 4, but is 3"):
        small_engine(edition="sglang", budget=3)
    small_engine(edition="sglang", budget=4)


def test_a_request_that_upstream_would_shorten_is_refused() -> None:
    engine = small_engine(num_blocks=4, edition="sglang")
    with pytest.raises(ConfigError, match=r"5 tokens in 16 slots leaves room for max_tokens=3, not 4"):
        engine.add([1] * 5, SamplingParams(4))
    engine.add([1] * 5, SamplingParams(3))


def test_an_aborted_request_that_runs_gets_one_more_token_and_stays_cached() -> None:
    engine = small_engine(block_size=1, num_blocks=16, edition="sglang")
    running = engine.add([1, 2, 3], SamplingParams(8))
    engine.step()
    assert engine.abort(running)
    assert engine.requests[running].finish_reason is None
    assert engine.step().finished == (running,)
    assert (engine.requests[running].finish_reason, engine.requests[running].num_generated_tokens) == ("abort", 2)
    assert [node.num_locks for node in engine.snapshot().tree] == [0, 0]
    assert not scheduler_of(engine).aborted


def test_an_undone_step_still_knows_what_it_was_to_abort() -> None:
    engine = small_engine(block_size=1, num_blocks=16, edition="sglang")
    running = engine.add([1, 2, 3], SamplingParams(8))
    engine.step()
    engine.abort(running)
    with raise_at_event(engine.hooks, 12), pytest.raises(ListenerFailed):
        engine.step()
    assert engine.step().finished == (running,)
    assert engine.requests[running].finish_reason == "abort"


def test_a_request_that_is_aborted_again_after_its_retraction_ends_at_once() -> None:
    engine = small_engine(block_size=1, num_blocks=24, edition="sglang")
    scheduler = scheduler_of(engine)
    running = engine.add([1, 2, 3], SamplingParams(8))
    engine.step()
    engine.abort(running)
    scheduler.preempt(engine.requests[running])
    assert scheduler.aborted and engine.abort(running)
    assert not scheduler.aborted and scheduler.is_idle


class CountingQueue(WaitingQueue):
    """Counts the requests that are walked over."""

    num_walked = 0

    def __iter__(self) -> Iterator[Request]:
        for request in super().__iter__():
            self.num_walked += 1
            yield request


def test_a_step_walks_over_no_more_waiting_requests_than_it_may_admit() -> None:
    parts = Parts(waiting_queue=CountingQueue).overriding(SGLANG)
    engine = small_engine(block_size=1, num_blocks=64, edition=parts, max_num_seqs=4)
    for i in range(300):
        engine.add([i] * 4, SamplingParams(4))
    walked = []
    for _ in range(40):
        before = engine.scheduler.waiting.num_walked  # type: ignore[attr-defined]
        engine.step()
        walked.append(engine.scheduler.waiting.num_walked - before)  # type: ignore[attr-defined]
    refreshing = [number for number in walked if number > 8]
    assert len(refreshing) == 1 and refreshing[0] <= scheduler_of(engine).most_refreshed + 8
    assert sum(walked) > refreshing[0]


@pytest.mark.parametrize("edition", [SGLANG, MINI_SGLANG, MINI_SGLANG_142])
def test_a_queue_that_overtakes_is_refused(edition: Parts) -> None:
    """A request in the middle of its prefill is at the head of the queue, or it would be admitted twice."""
    refused = "serves requests in order of arrival, .* must not override add_request: omit PriorityQueue, or"
    with pytest.raises(ConfigError, match=refused):
        small_engine(edition=Parts(waiting_queue=PriorityQueue).overriding(edition))
    with pytest.raises(ConfigError, match="does not support priorities"):
        Lab("simulated", edition=edition.name, policy="priority")


def test_a_request_aborted_in_its_prefill_ends_at_once_without_its_last_chunk() -> None:
    engine = small_engine(block_size=1, num_blocks=32, edition="sglang", budget=4)
    request_id = engine.add(list(range(12)), SamplingParams(2))
    engine.step()
    engine.step()
    engine.abort(request_id)
    assert engine.requests[request_id].finish_reason == "abort"
    assert [len(node.block_ids) for node in engine.snapshot().tree] == [4]


def test_states_that_later_steps_tell_apart_have_different_keys() -> None:
    def key(change: str) -> int:
        engine = small_engine(edition="sglang")
        scheduler, request_id = scheduler_of(engine), engine.add([1, 2, 3], SamplingParams(8))
        engine.step()
        if change == "aborted":
            engine.abort(request_id)
        elif change:
            setattr(scheduler, change, {"is_full": True, "new_token_ratio": 0.1, "num_passes": 7}[change])
        known = {type(part): attributes_of(part) for part in parts_of(scheduler)}
        return state_key(scheduler, SlotMemory([4]), known)

    changes = ["", "aborted", "is_full", "new_token_ratio", "num_passes"]
    assert len({key(change) for change in changes}) == len(changes) and key("") == key("")


def test_asking_whether_to_admit_notes_nothing_and_a_step_notes_that_no_place_is_left() -> None:
    engine = small_engine(edition="sglang", max_num_seqs=1)
    scheduler = scheduler_of(engine)
    for prompt in ([1, 2, 3], [4, 5, 6]):
        engine.add(prompt, SamplingParams(4))
    engine.step()
    assert scheduler.may_admit() and not scheduler.is_full
    engine.step()
    assert scheduler.is_full and not scheduler.may_admit()


def test_the_ratio_starts_over_when_nothing_is_left_to_run() -> None:
    engine = small_engine(edition="sglang")
    scheduler, request_id = scheduler_of(engine), engine.add([1, 2, 3], SamplingParams(4))
    engine.step()
    engine.step()
    assert scheduler.new_token_ratio < scheduler.first_new_token_ratio
    while not scheduler.is_idle:
        engine.step()
    assert engine.requests[request_id].finish_reason == "length"
    assert scheduler.new_token_ratio == scheduler.first_new_token_ratio


def test_a_refresh_makes_the_prefixes_of_waiting_requests_the_youngest() -> None:
    """The head is refused, so the request behind it is not looked up otherwise."""
    engine = small_engine(block_size=1, num_blocks=20, edition="sglang")
    scheduler = scheduler_of(engine)
    for prompt in ([1, 2, 3], [7, 8, 9]):
        engine.add(prompt, SamplingParams(1))
        engine.step()
    engine.add([5], SamplingParams(8))
    engine.step()
    engine.add([6] * 10, SamplingParams(8))
    engine.add([1, 2, 3, 4], SamplingParams(1))
    before = [node.node_id for node in engine.snapshot().tree]
    engine.step()
    assert [node.node_id for node in engine.snapshot().tree] == before
    scheduler.is_full, scheduler.num_passes = False, scheduler.refresh_interval
    engine.step()
    assert [node.node_id for node in engine.snapshot().tree] == [*before[1:], before[0]]
