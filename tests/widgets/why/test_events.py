"""Why? on a hash, on an event by its causes, and on the first differing decision of two editions."""

from __future__ import annotations

from labengine import events as ev
from labengine.core.editions import NANO_VLLM, NANO_VLLM_243
from labengine.session.reasons import seams_of
from labengine_widgets.compare.first_difference import why_different
from labengine_widgets.why import why
from recordings import timeline_of
from widgets.story_219 import block_hash
from widgets.why.why_runs import MERGED, OVERWRITTEN, Run, kinds, numbers


def test_a_hash_is_named_by_its_beginning() -> None:
    timeline = timeline_of(OVERWRITTEN)
    digits = block_hash(0).hex()
    reply = why(timeline, {"hash": digits[:6]})
    assert why(timeline, {"hash": f"{digits[:8]}…"}) == reply, "as it is printed"
    assert (
        reply.question == f"Why does hash {digits[:8]}… lead to #4?"
        and "#0 holds the same content, in use, but no look-up finds it" in reply.answer
    )
    assert why(timeline, {"hash": f"0:{digits}"}) == reply == why(timeline, {"hash": block_hash(0)})
    assert kinds(timeline, reply) == ["BlockCached", "BlockCached"]


def test_a_hash_that_is_gone() -> None:
    run = Run(num_blocks=4)
    run.play(range(100, 109))
    [key, *_] = run.timeline.state().prefix_map
    run.play(range(200, 214))
    reply = run.why(hash=key[1])
    assert reply.question.endswith("not in the map?") and "was evicted at event" in reply.answer


def test_an_event_is_explained_by_its_causes() -> None:
    timeline = timeline_of(MERGED)
    merge = next(n for n, e in enumerate(MERGED) if isinstance(e, ev.BlockMerged))
    reply = why(timeline, {"event": merge}, seams=seams_of(NANO_VLLM_243))
    assert kinds(timeline, reply) == [
        "RequestAdded",
        "PrefixHit",
        "RequestScheduled",
        "SlotsWritten",
        "BlockCached",
        "BlockMerged",
    ]
    assert "LateMerge.merge_target decided it: Return the first live block of equal content" in reply.answer


def test_an_eviction_is_caused_by_who_takes_the_block() -> None:
    run = Run(num_blocks=4)
    run.play(range(100, 109))
    run.play(range(200, 214))
    evicted = next(n for n, e in enumerate(run.timeline.events()) if isinstance(e, ev.BlockEvicted))
    chain = run.why(event=evicted)
    cause = run.timeline.events()[numbers(chain)[-2] or 0]
    assert isinstance(cause, ev.PrefixHit) and cause.request_id == 1


def test_two_editions_part_at_a_decision() -> None:
    at = next(n for n, (one, other) in enumerate(zip(MERGED, OVERWRITTEN, strict=False)) if one != other)
    reply = why_different(
        timeline_of(OVERWRITTEN),
        timeline_of(MERGED),
        at,
        at,
        (seams_of(NANO_VLLM), seams_of(NANO_VLLM_243)),
        ("nano", "243"),
    )
    assert reply.question == "Why do nano and 243 differ here?"
    assert "nano has MergePolicy.merge_target" in reply.answer and "243 has LateMerge.merge_target" in reply.answer
    assert [(link.side, link.event_number) for link in reply.links] == [(0, at), (1, at)]
    alone = why_different(timeline_of(OVERWRITTEN), timeline_of(MERGED), at, None)
    assert "nothing like it happens" in alone.answer and len(alone.links) == 1


def test_a_shared_block_is_explained_by_its_own_registration() -> None:
    run = Run(num_blocks=8)
    run.play(range(100, 109))
    run.play(range(100, 109))
    events = run.timeline.events()
    first = next(n for n, event in enumerate(events) if isinstance(event, ev.BlockTouched))
    chain = run.why(event=first)
    [registered] = [events[n] for n in numbers(chain) if n is not None and isinstance(events[n], ev.BlockCached)]
    assert registered.block_id == events[first].block_id == 0
