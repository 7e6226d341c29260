"""How a request ends: max_tokens, end of sequence, abort in every state."""

from __future__ import annotations

import pytest

from driving import ALL_EDITIONS, PACKING_EDITIONS, as_parts, assert_sound, num_last_slots, small_engine
from labengine.config import SamplingParams
from labengine.core.request import RequestStatus
from labengine.engine.engine import Engine


def sample_position(request_id: int, position: int) -> int:
    return position


@pytest.fixture(params=ALL_EDITIONS)
def edition(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(engine: Engine) -> None:
    while engine.step():
        assert_sound(engine.snapshot())


@pytest.mark.parametrize("max_tokens", [1, 4, 9])
def test_max_tokens_is_the_number_of_sampled_tokens(edition: str, max_tokens: int) -> None:
    engine = small_engine(edition=edition, next_token=sample_position)
    engine.add([7, 7, 7], SamplingParams(max_tokens=max_tokens))
    run(engine)
    assert engine.requests[0].finish_reason == "length"
    assert engine.snapshot().requests[0].token_ids == (7, 7, 7, *range(3, 3 + max_tokens))


def test_eos_ends_a_request_and_is_kept(edition: str) -> None:
    engine = small_engine(edition=edition, eos=frozenset({5, 100}), next_token=sample_position)
    engine.add([7, 7, 7], SamplingParams(max_tokens=9))
    run(engine)
    assert engine.requests[0].finish_reason == "stop"
    assert engine.snapshot().requests[0].token_ids == (7, 7, 7, 3, 4, 5)


def test_ignore_eos_goes_on(edition: str) -> None:
    engine = small_engine(edition=edition, eos=frozenset({5}), next_token=sample_position)
    engine.add([7, 7, 7], SamplingParams(max_tokens=9, ignore_eos=True))
    run(engine)
    assert engine.requests[0].finish_reason == "length"


def test_eos_as_the_last_allowed_token_is_a_stop(edition: str) -> None:
    engine = small_engine(edition=edition, eos=frozenset({5}), next_token=sample_position)
    engine.add([7, 7, 7], SamplingParams(max_tokens=3))
    run(engine)
    assert engine.requests[0].finish_reason == "stop"


def abort_in(edition: str, status: str) -> Engine:
    """Two requests; the second is aborted once its status is `status`."""
    engine = small_engine(4, 4, edition)
    engine.add([1] * 8, SamplingParams(max_tokens=5))
    engine.add([2] * 7, SamplingParams(max_tokens=5))
    while engine.requests[1].status != status:
        assert engine.step()
    assert engine.abort(1) is (status != "finished")
    return engine


STATUSES = ("waiting", "running", "preempted", "finished")
REACHED = [
    (name, status)
    for name in PACKING_EDITIONS
    for status in STATUSES
    if status != "preempted" or not num_last_slots(as_parts(name))  # who reserves all that is to come preempts nobody
]


@pytest.mark.parametrize(("edition", "status"), REACHED)
def test_abort_in_every_state(edition: str, status: str) -> None:
    engine = abort_in(edition, status)
    assert engine.requests[1].status is RequestStatus.FINISHED
    assert engine.requests[1].finish_reason == ("length" if status == "finished" else "abort")
    assert engine.abort(1) is False
    assert_sound(engine.snapshot())
    run(engine)
    assert engine.requests[0].finish_reason == "length"
    assert engine.scheduler.manager.pool.num_free == 4


def test_abort_of_a_partly_prefilled_request_frees_its_blocks(edition: str) -> None:
    engine = small_engine(8, 4, edition, budget=5)
    engine.add([1] * 12, SamplingParams(max_tokens=5))
    engine.step()
    engine.abort(0)
    assert engine.scheduler.manager.pool.num_free == 8
    assert not engine.step()


@pytest.mark.parametrize("edition", PACKING_EDITIONS)
def test_abort_of_one_sharer_leaves_the_blocks_to_the_other(edition: str) -> None:
    engine = small_engine(8, 4, edition)
    for _ in range(2):
        engine.add([1] * 9, SamplingParams(max_tokens=5))
        engine.step()
    shared = engine.snapshot().requests[1].block_tables[0][:2]
    engine.abort(0)
    assert [engine.snapshot().blocks[i].owners for i in shared] == [(1,), (1,)]
    assert_sound(engine.snapshot())


def test_abort_of_an_unknown_request_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        small_engine().abort(0)
