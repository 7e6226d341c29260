"""A keyframe is a copy of few objects, made without a call for each block, and is written in parts."""

from __future__ import annotations

import gc
import json
import sys
from itertools import cycle
from types import FrameType
from typing import Any

import pytest

from fake_vllm import FakeRequest, FakeScheduler
from labengine_vllm import state
from labengine_vllm.encoding import line_of
from labengine_vllm.engine import Engine
from labengine_vllm.recorder import Recorder
from labengine_vllm.state import Keyframe
from labengine_vllm.tokens import TokenIds

NUM_BLOCKS = 2000


@pytest.fixture
def engine() -> Engine:
    """A pool of which half is cached, and a request that runs."""
    scheduler = FakeScheduler(NUM_BLOCKS)
    for number in range(4):
        scheduler.add_request(
            FakeRequest(f"r{number}", range(number, number + NUM_BLOCKS // 2), 2 + 50 * (number == 3))
        )
        for _ in range(3):
            scheduler.update_from_output(scheduler.schedule(), None)
    return Engine.of(scheduler)


def test_its_parts_are_one_document(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ROWS_AT_ONCE", 7)
    frame = Keyframe(engine, Recorder(TokenIds()))
    message = json.loads(line_of({"n": 3, "k": frame, "names": {}}))
    assert message["k"] == json.loads(json.dumps(frame.document())) and (message["n"], message["names"]) == (3, {})
    assert len(message["k"]["block_keys"]) > NUM_BLOCKS // 4 and message["k"]["block_tokens"]
    assert len(message["k"]["ref_counts"]) == NUM_BLOCKS and len(list(frame.parts())) > NUM_BLOCKS // 7


def test_it_makes_no_object_for_each_block(engine: Engine) -> None:
    """Objects that Python's garbage collection follows would make it go through vLLM's whole heap."""
    gc.collect()
    before = len(gc.get_objects())
    frame = Keyframe(engine, Recorder(TokenIds()))
    assert len(gc.get_objects()) - before < 50
    assert len(frame.document()["ref_counts"]) == NUM_BLOCKS


def test_it_calls_nothing_for_each_block(engine: Engine) -> None:
    """100,000 blocks are copied in some milliseconds because no Python function runs for each of them."""
    calls: list[str] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    recorder = Recorder(TokenIds())
    sys.setprofile(count)
    try:
        Keyframe(engine, recorder)
    finally:
        sys.setprofile(None)
    assert 0 < len(calls) < 50, calls[:100]


def test_it_is_of_the_moment_at_which_it_was_made(engine: Engine) -> None:
    """The writer makes rows of it later, while the engine goes on."""
    scheduler, recorder, served = engine.scheduler, Recorder(TokenIds()), engine.pool.cached_block_hash_to_block
    for number in range(2):  # the same prompt at the same time: blocks that share a hash
        scheduler.add_request(FakeRequest(f"twin{number}", range(5000, 5020), 3))
    scheduler.update_from_output(scheduler.schedule(), None)
    assert any(isinstance(entry, dict) for entry in served._cache.values())
    at_once, copied = Keyframe(engine, recorder).document(), Keyframe(engine, recorder)
    for _ in range(60):
        scheduler.update_from_output(scheduler.schedule(), None)
    engine.pool.evict_blocks(set(range(1, NUM_BLOCKS, 2)))
    assert copied.document() == at_once != Keyframe(engine, recorder).document()


def test_it_copies_queues_that_are_broken(engine: Engine) -> None:
    """One without an end, and one with a request that is not among the requests."""
    (name,) = engine.scheduler.requests
    engine.scheduler.waiting = cycle(engine.scheduler.requests.values())
    engine.scheduler.running.append(FakeRequest("gone", [1, 2, 3], 1))
    recorder = Recorder(TokenIds())
    document = Keyframe(engine, recorder).document()
    assert document["waiting"] == document["running"] == [recorder.ids[name]] and "gone" not in recorder.ids
