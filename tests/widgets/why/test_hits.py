"""Why? on a hit or a miss: never computed, or evicted, overwritten, salted, reset, left out, or too late."""

from __future__ import annotations

from fake_tier import FakeTier
from labengine import events as ev
from labengine_widgets.why import why
from recordings import timeline_of
from widgets.story_219 import begin, merging_step
from widgets.why.why_runs import HYBRID, OVERWRITTEN, Run, kinds


def test_a_miss_of_what_nobody_computed_names_the_first_different_token() -> None:
    run = Run(num_blocks=12)
    run.play([*range(100, 109)])
    run.play([*range(100, 106), 7, 7, 7, 7])
    reply = run.why(request=1, about="hit")
    assert reply.question == "Why did B hit 4 of its 10 tokens?"
    place = "block 1 (positions 4 to 7) had never been computed here"
    assert f"{place}: A's first 6 tokens are the same; they differ from position 6 onward." in reply.answer


def test_219_a_miss_of_what_is_computed_in_the_same_step() -> None:
    timeline = timeline_of(OVERWRITTEN)
    reply = why(timeline, {"request": 1})
    assert reply.question == "Why did B hit nothing?"
    assert "was to be computed by A in this very step" in reply.answer and "too late" in reply.answer
    assert kinds(timeline, reply) == ["RequestScheduled", "PrefixHit", "BlockCached"]


def test_a_miss_of_what_takes_several_steps_to_compute() -> None:
    run = Run(num_blocks=32, block_size=16, budget=8, long_prefill_token_threshold=5)
    run.add(range(40), 4), run.add(range(40), 4)
    run.engine.step()
    reply = run.why(request=1, about="hit")
    assert "block 0 (positions 0 to 15)" in reply.answer and "A has not computed all" in reply.answer
    assert reply.answer.endswith("5 of 16 tokens after this step.")
    for _ in range(4):
        run.engine.step()
    assert "5 of 16 tokens after this step. Its hash entered the map" in run.why(request=1, about="hit").answer


def test_219_a_miss_of_what_is_alive_and_cannot_be_found() -> None:
    run = Run(num_blocks=7, edition="nano-vllm")
    prompt = list(range(1, 10))
    run.add(prompt, 4), run.add(prompt, 1)
    run.engine.step()
    run.add(range(101, 114), 1)
    run.engine.step()
    run.add(prompt, 1)
    run.engine.step()
    reply = run.why(request=3, about="hit")
    assert reply.question == "Why did D hit nothing?"
    assert "and C needed a block" in reply.answer
    assert (
        "A's #0 still held the same content, but the map did not lead to it: #3 had overwritten its entry"
        in reply.answer
    )
    assert kinds(run.timeline, reply)[:4] == ["BlockCached", "BlockCached", "BlockEvicted", "BlockAllocated"]


def test_a_miss_of_what_was_evicted_names_who_took_it() -> None:
    run = Run(num_blocks=4)
    run.play(range(100, 109))
    run.play(range(200, 214))
    run.play(range(100, 109))
    reply = run.why(request=2, about="hit")
    assert "it was free and first in the queue, and B needed a block" in reply.answer
    assert "BlockEvicted" in kinds(run.timeline, reply)


def test_a_miss_of_what_was_evicted_in_use_does_not_call_it_free() -> None:
    run = Run(num_blocks=8)
    run.add(range(100, 109), max_tokens=9)
    run.engine.step()
    run.engine.scheduler.manager.pool.evict_cached([0], "reused")
    run.add(range(100, 109))
    run.engine.step()
    answer = run.why(request=1, about="hit").answer
    assert "evicted at event" in answer and "1 table entry pointed to it, so it was not free." in answer


def test_a_miss_under_another_salt() -> None:
    run = Run(num_blocks=12)
    run.play(range(100, 109), salt="one")
    run.play(range(100, 109), salt="two")
    assert "under a different hash" in run.why(request=1, about="hit").answer


def test_a_miss_after_a_reset() -> None:
    run = Run(num_blocks=12)
    run.play(range(100, 109))
    run.engine.reset_prefix_cache()
    run.play(range(100, 109))
    assert "the cache was reset" in run.why(request=1, about="hit").answer


def left_out() -> list[ev.Event]:
    """219's first request, whose blocks a policy keeps out of the map, and then the second one's look-up."""
    step = [e for e in merging_step() if getattr(e, "request_id", 0) == 0 and not isinstance(e, ev.BlockMerged)]
    events = [
        ev.BlockCached(e.block_id, 0, 0, e.index, e.block_hash, ()) if isinstance(e, ev.BlockCached) else e
        for e in step
    ]
    return [*begin(), *events, ev.StepStarted(2), ev.PrefixHit(1, 0, ((),))]


def test_a_miss_of_what_was_never_put_into_the_map() -> None:
    timeline = timeline_of(left_out())
    reply = why(timeline, {"request": 1, "about": "hit"}).answer
    assert "full and hashed, but the map was not changed to lead to it" in reply
    lost = why(timeline, {"block": 0})
    assert lost.question == "Why is #0 lost?" and "kept nothing instead" in lost.answer


def test_a_miss_in_a_window_group_ends_the_hit_of_all() -> None:
    run = Run(num_blocks=40, groups=HYBRID)
    run.play(range(100, 121))
    state = run.timeline.state()
    window_key = [key for key in state.prefix_map if key[0] == 1][-1]
    run.engine.scheduler.manager.pool.evict_cached(state.prefix_map[window_key], "reused")
    run.play(range(100, 121))
    reply = run.why(request=1, about="hit")
    assert "the window group limited it" in reply.answer
    assert "was evicted" in reply.answer


def test_a_full_hit_leaves_the_last_token() -> None:
    run = Run(num_blocks=12)
    run.play(range(100, 109))
    run.play(range(100, 109))
    reply = run.why(request=1, about="hit")
    assert reply.question == "Why did B hit 8 of its 9 tokens?"
    assert "The map led it to #0 and #1" in reply.answer and "its last token is computed in any case" in reply.answer
    assert kinds(run.timeline, reply) == ["BlockCached", "BlockCached", "PrefixHit"]


def test_a_prompt_without_a_full_block() -> None:
    run = Run(num_blocks=12)
    run.play(range(3))
    assert "with 3 tokens and blocks of 4" in run.why(request=0, about="hit").answer


def test_a_hit_of_the_tier_is_explained() -> None:
    run = Run(num_blocks=24, connector=FakeTier())
    run.play(range(100, 117))
    run.engine.reset_prefix_cache()
    run.play(range(100, 117))
    reply = run.why(request=1, about="hit")
    assert "ExternalHit" in kinds(run.timeline, reply) and "the cache was reset" in reply.answer
