"""Which requests are admitted, with how many tokens, and which are preempted: budgets and max_num_seqs per edition."""

from __future__ import annotations

import pytest

from driving import ALL_EDITIONS, TOKEN_BUDGET_EDITIONS, num_null_blocks, recorded, small_engine, tables
from labengine.config import ConfigError, SamplingParams
from labengine.events import PrefixHit, RequestPreempted, RequestScheduled
from labengine.record.hooks import Hooks


def prompt(num_tokens: int, first: int = 0) -> list[int]:
    return [first * 1000 + i for i in range(num_tokens)]


def tokens(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=TOKEN_BUDGET_EDITIONS)
def token_budget_edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_refusing_a_request_that_never_fits_names_the_blocks_it_needs(edition: str) -> None:
    engine = small_engine(4, 4, edition)
    enough = 5 + num_null_blocks(engine.parts)
    with pytest.raises(
        ConfigError, match=rf"14 tokens with max_tokens=4 needs 5 blocks, and the pool has 4.*num_blocks={enough} "
    ):
        engine.add(prompt(14), tokens(4))
    assert engine.snapshot().requests == {}
    engine.add(prompt(14), tokens(3))  # the last token's KV is never written: 16 slots are enough
    while engine.step():
        pass
    assert engine.snapshot().requests[0].status == "finished"


def test_an_empty_prompt_is_refused(edition: str) -> None:
    with pytest.raises(ConfigError, match="the prompt is empty"):
        small_engine(edition=edition).add([], tokens(1))


def test_a_waiting_request_blocks_those_behind_it(edition: str) -> None:
    engine = small_engine(4, 4, edition)
    engine.add(prompt(8, 1), tokens(4))
    engine.add(prompt(12, 2), tokens(1))
    engine.add(prompt(2, 3), tokens(1))
    assert engine.step().scheduled == {0: 8}


def test_any_prefill_may_be_chunked_under_a_token_budget(token_budget_edition: str) -> None:
    engine = small_engine(16, 4, token_budget_edition, budget=10)
    engine.add(prompt(7, 1), tokens(3))
    engine.add(prompt(9, 2), tokens(3))
    reports = [engine.step() for _ in range(3)]
    assert [report.scheduled for report in reports] == [{0: 7, 1: 3}, {0: 1, 1: 6}, {0: 1, 1: 1}]
    assert [list(report.sampled) for report in reports] == [[0], [0, 1], [0, 1]]


def test_only_a_steps_first_prefill_may_be_chunked_in_nano_vllm() -> None:
    engine = small_engine(16, 4, "nano-vllm", budget=10)
    engine.add(prompt(7, 1), tokens(3))
    engine.add(prompt(13, 2), tokens(3))
    assert [engine.step().scheduled for _ in range(4)] == [{0: 7}, {1: 10}, {1: 3}, {0: 1, 1: 1}]


def test_a_partly_prefilled_request_waits_in_nano_vllm_and_runs_otherwise() -> None:
    for edition in ALL_EDITIONS:
        engine = small_engine(16, 4, edition, budget=5)
        engine.add(prompt(12), tokens(1))
        engine.step()
        expected = "running" if edition in TOKEN_BUDGET_EDITIONS else "waiting"
        assert engine.snapshot().requests[0].status == expected, edition


def test_blocks_of_a_chunked_prompt() -> None:
    """nano-vLLM reserves the whole prompt; a token budget takes what its chunk needs."""
    for edition in ALL_EDITIONS:
        engine = small_engine(16, 4, edition, budget=5)
        engine.add(prompt(12), tokens(1))
        engine.step()
        assert len(tables(engine)[0]) == (2 if edition in TOKEN_BUDGET_EDITIONS else 3), edition


def test_a_chunked_prompt_is_admitted_only_if_it_fits_completely(token_budget_edition: str) -> None:
    engine = small_engine(5, 4, token_budget_edition, budget=8)
    engine.add(prompt(8, 1), tokens(5))
    engine.add(prompt(16, 2), tokens(1))
    engine.step()
    assert engine.step().scheduled == {0: 1}


def test_max_num_seqs_limits_a_step_in_nano_vllm() -> None:
    engine = small_engine(16, 4, "nano-vllm", max_num_seqs=2)
    for number in range(3):
        engine.add(prompt(4, number), tokens(4))
    assert [list(engine.step().scheduled) for _ in range(3)] == [[0, 1], [2], [0, 1]]
    assert len(engine.scheduler.running) == 3


def test_max_num_seqs_limits_the_running_requests_under_a_token_budget(token_budget_edition: str) -> None:
    engine = small_engine(16, 4, token_budget_edition, max_num_seqs=2)
    for number in range(3):
        engine.add(prompt(4, number), tokens(2))
    assert [list(engine.step().scheduled) for _ in range(3)] == [[0, 1], [0, 1], [2]]


def test_decode_preempts_the_youngest_who_recomputes_from_the_cache(edition: str) -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(4, 4, edition, hooks=hooks)
    engine.add(prompt(8, 1), tokens(5))
    engine.add(prompt(7, 2), tokens(5))
    engine.step()
    report = engine.step()
    assert report.preempted == (1,)
    assert list(report.scheduled) == [0]
    state = engine.snapshot().requests[1]
    assert (state.status, state.num_computed_tokens, state.block_tables) == ("preempted", 0, ((),))
    while engine.step():
        pass
    assert [event.request_id for event in events if isinstance(event, RequestPreempted)] == [1]
    assert [event.num_tokens for event in events if isinstance(event, PrefixHit)][-1] == 4
    assert len(engine.snapshot().requests[1].token_ids) == 12


def test_a_request_may_have_to_preempt_itself(edition: str) -> None:
    engine = small_engine(3, 4, edition)
    engine.add(prompt(4, 1), tokens(5))
    engine.add(prompt(4, 2), tokens(5))
    engine.step()
    report = engine.step()
    assert (report.preempted, list(report.scheduled)) == ((1,), [0])


def test_a_step_that_preempted_admits_nobody(token_budget_edition: str) -> None:
    engine = small_engine(5, 4, token_budget_edition)
    engine.add(prompt(8, 1), tokens(9))
    engine.add(prompt(8, 2), tokens(9))
    engine.step()
    engine.add(prompt(2, 3), tokens(1))
    report = engine.step()
    assert (report.preempted, list(report.scheduled)) == ((1,), [0])
    assert len(engine.snapshot().free_queue) == 2, "there was room for it"
    assert engine.snapshot().requests[2].status == "waiting"


def test_a_preempted_request_waits_in_front(edition: str) -> None:
    engine = small_engine(4, 4, edition)
    engine.add(prompt(8, 1), tokens(5))
    engine.add(prompt(7, 2), tokens(5))
    engine.step()
    engine.add(prompt(16, 3), tokens(1))
    engine.step()
    assert [request.request_id for request in engine.scheduler.waiting] == [1, 2]


def test_decode_needs_a_block_only_when_its_position_opens_one(edition: str) -> None:
    engine = small_engine(8, 4, edition)
    engine.add(prompt(3), tokens(7))
    lengths = []
    while engine.step():
        lengths.append(len(tables(engine).get(0, ())))
    assert lengths == [1, 1, 2, 2, 2, 2, 0]


def test_scheduled_events_have_the_share_of_the_step() -> None:
    hooks = Hooks(strict=True)
    events = recorded(hooks)
    engine = small_engine(16, 4, "labengine", budget=5, hooks=hooks)
    engine.add(prompt(7), tokens(2))
    while engine.step():
        pass
    scheduled = [(e.start, e.num_tokens, e.is_prefill) for e in events if isinstance(e, RequestScheduled)]
    assert scheduled == [(0, 5, True), (5, 2, True), (7, 1, False)]
