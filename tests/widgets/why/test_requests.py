"""Why? on a request: preempted, waiting, finished."""

from __future__ import annotations

import pytest

from fake_tier import FakeTier
from labengine import events as ev
from widgets.why.why_runs import Run, kinds


def test_a_preemption_names_the_request_that_needed_room_and_the_one_that_took_it() -> None:
    run = Run(num_blocks=6, edition="nano-vllm")
    run.add(range(100, 108), 9), run.add(range(200, 208), 9)
    while not run.timeline.of_kind(ev.RequestPreempted):
        run.engine.step()
    reply = run.why(request=1)
    assert reply.question == "Why was B preempted?"
    assert "A needed a block for its next tokens, and no block was free." in reply.answer
    assert "B was the last to be admitted (after A)" in reply.answer
    assert "Of its blocks, the engine then allocated" in reply.answer
    chain = kinds(run.timeline, reply)
    assert chain[0] == "TokenSampled" and chain[-2:] == ["RequestPreempted", "BlockAllocated"]
    assert "not preempted" in run.why(request=0, about="preempted").answer


def test_a_request_that_preempts_itself() -> None:
    run = Run(num_blocks=6, edition="nano-vllm")
    run.add(range(100, 108), 9), run.add(range(200, 209), 9)
    while not run.timeline.of_kind(ev.RequestPreempted):
        run.engine.step()
    assert "B itself needed a block for its next token" in run.why(request=1).answer


def test_waiting_says_what_the_last_step_did_instead() -> None:
    run = Run(num_blocks=6)
    run.add(range(100, 113), 4)
    assert "No step has begun since it joined the waiting queue" in run.why(request=0).answer
    run.add(range(200, 213), 4), run.add(range(300, 303), 4)
    run.engine.step()
    assert "B needs up to 4 blocks, but 2 were free" in run.why(request=1).answer
    assert "B is ahead of it in the waiting queue" in run.why(request=2).answer
    assert "not waiting: it is running" in run.why(request=0, about="waiting").answer


def test_waiting_for_a_load() -> None:
    tier = FakeTier(delay=100)
    run = Run(num_blocks=24, connector=tier)
    run.play(range(100, 117))
    run.engine.reset_prefix_cache()
    run.add(range(100, 117), 2)
    run.engine.step()
    assert run.timeline.of_kind(ev.ExternalHit)[-1].is_loading
    assert "loading 16 tokens" in run.why(request=1, about="waiting").answer


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("length", "A may generate 2 tokens, and this was token 2."),
        ("stop", "is the end-of-text token."),
        ("abort", "aborted from outside"),
    ],
)
def test_finished(reason: str, expected: str) -> None:
    run = Run(num_blocks=6, next_token=lambda request_id, position: 77, eos=frozenset({77} if reason == "stop" else ()))
    run.add(range(100, 105), 2)
    run.engine.step()
    if reason == "abort":
        run.engine.abort(0)
    elif reason == "length":
        run.engine.step()
    reply = run.why(request=0)
    assert reply.question == "Why is A finished?" and expected in reply.answer
    assert kinds(run.timeline, reply) == ["RequestAdded", "TokenSampled", "RequestFinished"]
