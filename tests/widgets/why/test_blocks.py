"""Why? on a block: held twice, lost, free, set aside, next in the queue, and the chain that adds up to it."""

from __future__ import annotations

import re

import pytest

from core.test_own_decisions import NewestFirst
from labengine import Parts
from labengine import events as ev
from labengine.core.editions import EDITIONS, NANO_VLLM
from labengine.core.free_queue import FreeQueue
from labengine.session.reasons import seams_of
from labengine_widgets.why import why
from recordings import timeline_of
from widgets.why.why_runs import HYBRID, MERGED, OVERWRITTEN, Run, kinds, numbers


def test_219_a_merged_block_is_held_twice() -> None:
    timeline = timeline_of(MERGED)
    reply = why(timeline, {"block": 0})
    assert reply.question == "Why is #0's ref count 2?"
    assert reply.answer.startswith("2 table entries point to #0: A's table[0] and B's table[0].")
    assert "an equal copy was merged into it" in reply.answer
    assert kinds(timeline, reply) == ["BlockAllocated", "BlockMerged"]
    assert [link.change for link in reply.links] == [1, 1]


def test_219_a_copy_is_free_for_it_was_merged() -> None:
    timeline = timeline_of(MERGED)
    reply = why(timeline, {"block": 4})
    assert reply.question == "Why is #4 free?" and reply.answer.startswith("B was the last to hold it, and merged")
    assert kinds(timeline, reply) == ["BlockMerged", "BlockFreed"]


def test_219_an_overwritten_block_is_lost() -> None:
    timeline = timeline_of(OVERWRITTEN)
    reply = why(timeline, {"block": 1}, seams=seams_of(NANO_VLLM))
    assert reply.question == "Why is #1 lost?"
    assert re.findall(r"\b[AB]\b|#\d", reply.answer) == ["A", "#1", "B", "#5"]
    cached = [n for n, e in enumerate(OVERWRITTEN) if isinstance(e, ev.BlockCached) and e.index == 1]
    assert numbers(reply) == cached
    assert reply.links[1].seam == "MergePolicy.mapped_after" and "the last hasher wins" in reply.links[1].reason
    assert "overwrote the map's entry" in reply.links[1].sentence


def test_a_taker_that_held_something_else_before_keeps_the_entry() -> None:
    run = Run(num_blocks=8, edition="nano-vllm")
    run.play(range(700, 731))
    for _ in range(2):
        run.add(range(8), 8)
        run.engine.step(), run.engine.step()
    reply = run.why(block=6)
    assert reply.question == "Why is #6 lost?" and reply.answer.endswith("and #4 overwrote the map's entry.")
    assert kinds(run.timeline, reply) == ["BlockCached", "BlockCached"]


def test_a_block_in_two_tables_of_one_request_is_described_as_such() -> None:
    tokens = tuple(range(9))
    events: list[ev.Event] = [
        ev.EngineStarted(4, (("full", 4, None), ("sliding_window", 4, 16)), "vllm"),
        ev.RequestAdded(0, tokens, 1),
        ev.StepStarted(1),
        ev.PrefixHit(0, 4, ((1,), (2,))),
        ev.BlockAllocated(2, 0, 0, 0),
        ev.BlockTouched(2, 0, 1, 0, 2),
        ev.ViolationFound("one_entry", "block 2 stands in two tables", (0,), (2,), 1, 5),
    ]
    timeline, seams = timeline_of(events), seams_of(EDITIONS["vllm"])
    reply = why(timeline, {"block": 2})
    assert "A's table[0] and A's table[0] of group 1. One request holds it twice" in reply.answer
    violation = why(timeline, {"event": 6}, seams=seams)
    assert (
        "Because of event 5" in violation.answer and "KVCacheManager.allocate_computed decided that" in violation.answer
    )


def test_a_reference_without_an_event_is_counted_and_named() -> None:
    events = [ev.BlockTouched(0, 1, 0, 4, 4) if isinstance(e, ev.StepEnded) else e for e in MERGED]
    reply = why(timeline_of(events), {"block": 0})
    assert sum(link.change for link in reply.links) == 4 and reply.links[-1].change == 2
    assert "a reference that no table holds" in reply.links[-1].sentence and "the two should be equal" in reply.answer


def test_a_table_entry_that_is_not_counted_is_named() -> None:
    events = [
        ev.BlockMerged(one.block_id, one.into_block_id, one.request_id, 0, one.index, 1)
        if isinstance(one, ev.BlockMerged) and one.into_block_id == 0
        else one
        for one in MERGED
    ]
    reply = why(timeline_of(events), {"block": 0})
    assert "+1" in reply.links[-1].sentence and "changed by nothing" in reply.links[-1].sentence
    assert [link.change for link in reply.links] == [1, 0] and "the two should be equal" in reply.answer


def test_a_question_is_asked_at_its_moment() -> None:
    timeline = timeline_of(OVERWRITTEN)
    before = next(n for n, e in enumerate(OVERWRITTEN) if isinstance(e, ev.BlockCached) and e.request_id == 1)
    assert "It is not lost" in why(timeline, {"block": 0, "about": "lost"}, before).answer
    assert why(timeline, {"block": 0}, before + 1).question == "Why is #0 lost?"


def test_a_block_that_nobody_took_is_free_from_the_start() -> None:
    reply = why(timeline_of(MERGED), {"block": 11})
    assert "No request has held it since the engine started" in reply.answer and numbers(reply) == [0]


def test_a_free_block_names_what_it_keeps() -> None:
    run = Run(num_blocks=6)
    run.play(range(100, 109))
    reply = run.why(block=0)
    assert "A was the last to hold it, and finished. It still holds 4 tokens" in reply.answer
    assert kinds(run.timeline, reply) == ["TokenSampled", "BlockFreed", "RequestFinished"]
    assert "It holds no cached content." in run.why(block=2).answer


def test_a_block_outside_the_window_is_free() -> None:
    run = Run(num_blocks=24, groups=HYBRID)
    run.add(range(100, 113), 12)
    for _ in range(8):
        run.engine.step()
    dropped = [e for e in run.timeline.of_kind(ev.BlockFreed) if e.reason == "window"]
    assert "no later token's window reaches back" in run.why(block=dropped[0].block_id).answer


def test_a_null_block_is_set_aside() -> None:
    run = Run(num_blocks=6, edition="vllm")
    assert "set aside" in run.why(block=0).answer


def test_the_next_victim_and_those_before_it_that_are_gone() -> None:
    run = Run(num_blocks=6)
    run.play(range(100, 109))
    run.add(range(200, 209), 8)
    run.engine.step()
    state = run.timeline.state()
    head = next(iter(state.free_queue))
    reply = run.why(next_victim=True)
    assert reply.question.startswith(f"Why is #{head} next to be")
    assert "No block is ahead of it." in reply.answer
    gone = [run.timeline.events()[n] for n in numbers(reply)[1:] if n is not None]
    assert gone and all(isinstance(e, ev.BlockAllocated) for e in gone)
    last = list(state.free_queue)[-1]
    assert f"in the free queue (number {len(state.free_queue)})" in run.why(block=last, about="queue").question


def test_a_victim_with_content_says_what_will_be_forgotten() -> None:
    run = Run(num_blocks=3, edition="nano-vllm")
    run.play(range(100, 108))
    run.play(range(200, 203))
    reply = run.why(next_victim=True)
    assert reply.question.endswith("next to be evicted?") and "Its next allocation evicts hash" in reply.answer


@pytest.mark.parametrize("module", [NewestFirst.__module__, "labengine.core.other"])
def test_where_another_queue_takes_blocks_the_head_is_not_called_the_next(module: str) -> None:
    queue = type("NewestFirst", (FreeQueue,), {"__module__": module, "take": NewestFirst.take})
    parts = Parts(free_queue=queue).overriding(EDITIONS["labengine"])
    reply = why(timeline_of(MERGED), {"block": 6, "about": "queue"}, seams=seams_of(parts))
    assert reply.question == "Why is #6 at the head of the free queue?"
    assert "No block is ahead of it. NewestFirst.take decides which block is taken." in reply.answer


def test_nobody_is_next_where_nothing_is_free() -> None:
    run = Run(num_blocks=3)
    run.add(range(100, 111), 1)
    phases = run.engine.phases()
    next(phases)
    assert "no block is free" in run.why(next_victim=True).answer
