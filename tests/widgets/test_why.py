"""Why? on blocks, requests, hashes and events: what is answered, that the chain adds up, and that nothing raises."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from driving import small_engine
from fake_tier import FakeTier
from grounds import ALL_GROUNDS, Ground
from labengine import events as ev
from labengine.config import GroupSpec, SamplingParams
from labengine.core.editions import EDITIONS, NANO_VLLM, NANO_VLLM_243
from labengine.desk.reasons.seams import seams_of
from labengine.engine.engine import Engine
from labengine.fold import surviving
from labengine.hooks import Hooks
from labengine.timeline import Timeline
from labengine.trace.file import open_file, save
from labengine_widgets.why import Link, Why, WhyError, answer, carried_answers, why, why_parted
from labengine_widgets.why.subjects import ABOUT
from widgets.story_219 import begin, block_hash, merging_step, overwriting_step

MERGED, OVERWRITTEN = [*begin(), *merging_step()], [*begin(), *overwriting_step()]
FULL = (GroupSpec(4),)
HYBRID = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))


def recording(events: Iterable[ev.Event]) -> Timeline:
    timeline = Timeline()
    for event in events:
        timeline.record(event)
    return timeline


def numbers(told: Why) -> list[int | None]:
    return [link.event_number for link in told.links]


def kinds(timeline: Timeline, told: Why) -> list[str]:
    """The kinds of the events of a chain."""
    events = timeline.events()
    return [type(events[n]).__name__ for n in numbers(told) if n is not None]


class Run:
    """A small engine and its recording."""

    def __init__(self, **options: object) -> None:
        hooks = Hooks(strict=True)
        self.timeline = Timeline()
        hooks.subscribe(self.timeline.record)
        self.engine: Engine = small_engine(hooks=hooks, **options)  # type: ignore[arg-type]  # as a test says them

    def add(self, tokens: Iterable[int], max_tokens: int = 1, salt: str | None = None) -> int:
        return self.engine.add(list(tokens), SamplingParams(max_tokens=max_tokens, ignore_eos=False), salt)

    def play(self, tokens: Iterable[int], max_tokens: int = 1, salt: str | None = None) -> int:
        """Add, and run until nobody is left."""
        request_id = self.add(tokens, max_tokens, salt)
        while not self.engine.scheduler.is_idle:
            self.engine.step()
        return request_id

    def why(self, moment: int | None = None, **subject: object) -> Why:
        return why(self.timeline, subject, moment)


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_219_a_merged_block_is_held_twice() -> None:
    timeline = recording(MERGED)
    told = why(timeline, {"block": 0})
    assert told.question == "Why is #0's ref count 2?"
    assert told.answer.startswith("2 table entries point at #0: A's table[0] and B's table[0].")
    assert "an equal copy was merged into it" in told.answer
    assert kinds(timeline, told) == ["BlockAllocated", "BlockMerged"]
    assert [link.change for link in told.links] == [1, 1]


def test_219_a_copy_is_free_for_it_was_merged() -> None:
    timeline = recording(MERGED)
    told = why(timeline, {"block": 4})
    assert told.question == "Why is #4 free?" and "turned to an equal block" in told.answer
    assert kinds(timeline, told) == ["BlockMerged", "BlockFreed"]


def test_219_an_overwritten_block_is_lost() -> None:
    timeline = recording(OVERWRITTEN)
    told = why(timeline, {"block": 1}, seams=seams_of(NANO_VLLM))
    assert told.question == "Why is #1 lost?"
    assert told.answer == (
        "A still reads #1, but nobody new can find it: B registered the same hash later, and #5 took the map's entry."
    )
    cached = [n for n, e in enumerate(OVERWRITTEN) if isinstance(e, ev.BlockCached) and e.index == 1]
    assert numbers(told) == cached
    assert told.links[1].seam == "MergePolicy.mapped_after" and told.links[1].reason.startswith("The last hasher wins")
    assert "took the map's entry" in told.links[1].sentence


def test_a_block_in_two_tables_of_one_request_is_told_as_such() -> None:
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
    timeline, seams = recording(events), seams_of(EDITIONS["vllm"])
    told = why(timeline, {"block": 2})
    assert "A's table[0] and A's table[0] of group 1. One request holds it twice" in told.answer
    violation = why(timeline, {"event": 6}, seams=seams)
    assert (
        "Because of event 5" in violation.answer and "KVCacheManager.allocate_computed decided that" in violation.answer
    )


def test_a_reference_that_no_event_tells_is_counted_and_named() -> None:
    events = [ev.BlockTouched(0, 1, 0, 4, 4) if isinstance(e, ev.StepEnded) else e for e in MERGED]
    told = why(recording(events), {"block": 0})
    assert sum(link.change for link in told.links) == 4 and told.links[-1].change == 2
    assert "a reference that no table holds" in told.links[-1].sentence and "the two should be equal" in told.answer


def test_a_question_is_asked_at_its_moment() -> None:
    timeline = recording(OVERWRITTEN)
    before = next(n for n, e in enumerate(OVERWRITTEN) if isinstance(e, ev.BlockCached) and e.request_id == 1)
    assert "It is not lost" in why(timeline, {"block": 0, "about": "lost"}, before).answer
    assert why(timeline, {"block": 0}, before + 1).question == "Why is #0 lost?"


def test_a_block_that_nobody_took_is_free_from_the_start() -> None:
    told = why(recording(MERGED), {"block": 11})
    assert "Nobody has held it since the engine started" in told.answer and numbers(told) == [0]


def test_a_free_block_tells_what_it_keeps() -> None:
    run = Run(num_blocks=6)
    run.play(range(100, 109))
    told = run.why(block=0)
    assert "A was the last to hold it, and finished. It still holds 4 tokens" in told.answer
    assert kinds(run.timeline, told) == ["TokenSampled", "BlockFreed", "RequestFinished"]
    assert "It holds nothing that anybody could find." in run.why(block=2).answer


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


# -- the queue ---------------------------------------------------------------------------------------------------------


def test_the_next_victim_and_those_before_it_that_are_gone() -> None:
    run = Run(num_blocks=6)
    run.play(range(100, 109))
    run.add(range(200, 209), 8)
    run.engine.step()
    state = run.timeline.state()
    head = next(iter(state.free_queue))
    told = run.why(next_victim=True)
    assert told.question.startswith(f"Why is #{head} next to be")
    assert "Nobody stands before it." in told.answer
    gone = [run.timeline.events()[n] for n in numbers(told)[1:] if n is not None]
    assert gone and all(isinstance(e, ev.BlockAllocated) for e in gone)
    last = list(state.free_queue)[-1]
    assert f"number {len(state.free_queue)} in the free queue" in run.why(block=last, about="queue").question


def test_a_victim_with_content_says_what_will_be_forgotten() -> None:
    run = Run(num_blocks=3, edition="nano-vllm")
    run.play(range(100, 108))
    run.play(range(200, 203))
    told = run.why(next_victim=True)
    assert told.question.endswith("next to be evicted?") and "makes the map forget hash" in told.answer


def test_nobody_is_next_where_nothing_is_free() -> None:
    run = Run(num_blocks=3)
    run.add(range(100, 111), 1)
    phases = run.engine.phases()
    next(phases)
    assert "no block is free" in run.why(next_victim=True).answer


# -- hits and misses ---------------------------------------------------------------------------------------------------


def test_a_miss_of_what_nobody_computed_tells_where_the_prompts_part() -> None:
    run = Run(num_blocks=12)
    run.play([*range(100, 109)])
    run.play([*range(100, 106), 7, 7, 7, 7])
    told = run.why(request=1, about="hit")
    assert told.question == "Why did B hit 4 of its 10 tokens?"
    assert (
        "block 1 (positions 4 to 7) had never been computed here: A's first 6 tokens are the same, and at"
        in told.answer
    )


def test_219_a_miss_of_what_is_computed_in_the_same_step() -> None:
    timeline = recording(OVERWRITTEN)
    told = why(timeline, {"request": 1})
    assert told.question == "Why did B hit nothing?"
    assert "was to be computed by A in this very step" in told.answer and "too late" in told.answer
    assert kinds(timeline, told) == ["RequestScheduled", "PrefixHit", "BlockCached"]


def test_219_a_miss_of_what_is_alive_and_cannot_be_found() -> None:
    run = Run(num_blocks=7, edition="nano-vllm")
    prompt = list(range(1, 10))
    run.add(prompt, 4), run.add(prompt, 1)
    run.engine.step()
    run.add(range(101, 114), 1)
    run.engine.step()
    run.add(prompt, 1)
    run.engine.step()
    told = run.why(request=3, about="hit")
    assert told.question == "Why did D hit nothing?"
    assert "and C needed a block" in told.answer
    assert "A's #0 still held the same content, but the map did not lead to it: #3 had taken its entry" in told.answer
    assert kinds(run.timeline, told)[:4] == ["BlockCached", "BlockCached", "BlockEvicted", "BlockAllocated"]


def test_a_miss_of_what_was_evicted_names_who_took_it() -> None:
    run = Run(num_blocks=4)
    run.play(range(100, 109))
    run.play(range(200, 214))
    run.play(range(100, 109))
    told = run.why(request=2, about="hit")
    assert "it was free and first in the queue, and B needed a block" in told.answer
    assert "BlockEvicted" in kinds(run.timeline, told)


def test_a_miss_under_another_salt() -> None:
    run = Run(num_blocks=12)
    run.play(range(100, 109), salt="one")
    run.play(range(100, 109), salt="two")
    assert "under another hash" in run.why(request=1, about="hit").answer


def test_a_miss_after_a_reset() -> None:
    run = Run(num_blocks=12)
    run.play(range(100, 109))
    run.engine.reset_prefix_cache()
    run.play(range(100, 109))
    assert "the whole cache was reset" in run.why(request=1, about="hit").answer


def left_out() -> list[ev.Event]:
    """219's first request, whose blocks a policy keeps out of the map, and then the second one's look-up."""
    step = [e for e in merging_step() if getattr(e, "request_id", 0) == 0 and not isinstance(e, ev.BlockMerged)]
    told = [
        ev.BlockCached(e.block_id, 0, 0, e.index, e.block_hash, ()) if isinstance(e, ev.BlockCached) else e
        for e in step
    ]
    return [*begin(), *told, ev.StepStarted(2), ev.PrefixHit(1, 0, ((),))]


def test_a_miss_of_what_was_never_put_into_the_map() -> None:
    timeline = recording(left_out())
    assert "full and hashed, but the map was not led to it" in why(timeline, {"request": 1, "about": "hit"}).answer
    lost = why(timeline, {"block": 0})
    assert lost.question == "Why is #0 lost?" and "kept nothing instead" in lost.answer


def test_a_miss_in_a_window_group_ends_the_hit_of_all() -> None:
    run = Run(num_blocks=40, groups=HYBRID)
    run.play(range(100, 121))
    state = run.timeline.state()
    window_key = [key for key in state.prefix_map if key[0] == 1][-1]
    run.engine.scheduler.manager.pool.evict_cached(state.prefix_map[window_key], "reused")
    run.play(range(100, 121))
    told = run.why(request=1, about="hit")
    assert "All groups have to agree on one length, and the window group ended it." in told.answer
    assert "was evicted" in told.answer


def test_a_full_hit_leaves_the_last_token() -> None:
    run = Run(num_blocks=12)
    run.play(range(100, 109))
    run.play(range(100, 109))
    told = run.why(request=1, about="hit")
    assert told.question == "Why did B hit 8 of its 9 tokens?"
    assert "The map led it to #0 and #1" in told.answer and "its last token is computed in any case" in told.answer
    assert kinds(run.timeline, told) == ["BlockCached", "BlockCached", "PrefixHit"]


def test_a_prompt_without_a_full_block() -> None:
    run = Run(num_blocks=12)
    run.play(range(3))
    assert "there was none to look for" in run.why(request=0, about="hit").answer


def test_a_hit_of_the_tier_is_told() -> None:
    run = Run(num_blocks=24, connector=FakeTier())
    run.play(range(100, 117))
    run.engine.reset_prefix_cache()
    run.play(range(100, 117))
    told = run.why(request=1, about="hit")
    assert "ExternalHit" in kinds(run.timeline, told) and "the whole cache was reset" in told.answer


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_preemption_tells_who_needed_room_and_who_took_it() -> None:
    run = Run(num_blocks=6, edition="nano-vllm")
    run.add(range(100, 108), 9), run.add(range(200, 208), 9)
    while not run.timeline.of_kind(ev.RequestPreempted):
        run.engine.step()
    told = run.why(request=1)
    assert told.question == "Why was B preempted?"
    assert "A needed a block for its next tokens, and no block was free." in told.answer
    assert "B was the one admitted last of those who ran (before it A), and the youngest gives way." in told.answer
    assert "Of its blocks, A took" in told.answer
    chain = kinds(run.timeline, told)
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
    assert "No step has begun since it joined the line" in run.why(request=0).answer
    run.add(range(200, 213), 4), run.add(range(300, 303), 4)
    run.engine.step()
    assert "B needs up to 4 blocks, and 2 were free" in run.why(request=1).answer
    assert "B stands in line before it, and the line is kept: B goes first" in run.why(request=2).answer
    assert "not waiting: it is running" in run.why(request=0, about="waiting").answer


def test_waiting_for_a_load() -> None:
    tier = FakeTier(delay=100)
    run = Run(num_blocks=24, connector=tier)
    run.play(range(100, 117))
    run.engine.reset_prefix_cache()
    run.add(range(100, 117), 2)
    run.engine.step()
    assert run.timeline.of_kind(ev.ExternalHit)[-1].is_loading
    assert "The external tier is bringing 16 tokens" in run.why(request=1, about="waiting").answer


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("length", "A may generate 2 tokens, and this was number 2."),
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
    told = run.why(request=0)
    assert told.question == "Why is A finished?" and expected in told.answer
    assert kinds(run.timeline, told) == ["RequestAdded", "TokenSampled", "RequestFinished"]


# -- hashes and events -------------------------------------------------------------------------------------------------


def test_a_hash_is_named_by_its_beginning() -> None:
    timeline = recording(OVERWRITTEN)
    digits = block_hash(0).hex()
    told = why(timeline, {"hash": digits[:6]})
    assert (
        told.question == f"Why does hash {digits[:8]}… lead to #4?"
        and "#0 holds the same, alive, and cannot be found" in told.answer
    )
    assert why(timeline, {"hash": f"0:{digits}"}) == told == why(timeline, {"hash": block_hash(0)})
    assert kinds(timeline, told) == ["BlockCached", "BlockCached"]


def test_a_hash_that_is_gone() -> None:
    run = Run(num_blocks=4)
    run.play(range(100, 109))
    [key, *_] = run.timeline.state().prefix_map
    run.play(range(200, 214))
    told = run.why(hash=key[1])
    assert told.question.endswith("not in the map?") and "was evicted at event" in told.answer


def test_an_event_is_told_by_its_causes() -> None:
    timeline = recording(MERGED)
    merge = next(n for n, e in enumerate(MERGED) if isinstance(e, ev.BlockMerged))
    told = why(timeline, {"event": merge}, seams=seams_of(NANO_VLLM_243))
    assert kinds(timeline, told) == [
        "RequestAdded",
        "PrefixHit",
        "RequestScheduled",
        "SlotsWritten",
        "BlockCached",
        "BlockMerged",
    ]
    assert "LateMerge.merge_target decided it: The first live block of equal content" in told.answer


def test_an_eviction_is_caused_by_who_takes_the_block() -> None:
    run = Run(num_blocks=4)
    run.play(range(100, 109))
    run.play(range(200, 214))
    evicted = next(n for n, e in enumerate(run.timeline.events()) if isinstance(e, ev.BlockEvicted))
    chain = run.why(event=evicted)
    cause = run.timeline.events()[numbers(chain)[-2] or 0]
    assert isinstance(cause, ev.PrefixHit) and cause.request_id == 1


# -- two editions ------------------------------------------------------------------------------------------------------


def test_two_editions_part_at_a_decision() -> None:
    at = next(n for n, (one, other) in enumerate(zip(MERGED, OVERWRITTEN, strict=False)) if one != other)
    told = why_parted(
        recording(OVERWRITTEN),
        recording(MERGED),
        at,
        at,
        (seams_of(NANO_VLLM), seams_of(NANO_VLLM_243)),
        ("nano", "243"),
    )
    assert told.question == "Why do nano and 243 part here?"
    assert "nano has MergePolicy.merge_target" in told.answer and "243 has LateMerge.merge_target" in told.answer
    assert [(link.side, link.event_number) for link in told.links] == [(0, at), (1, at)]
    alone = why_parted(recording(OVERWRITTEN), recording(MERGED), at, None)
    assert "nothing of the kind happens" in alone.answer and len(alone.links) == 1


# -- what is wrong with a question -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({}, "a question is about one thing"),
        ({"block": 1, "request": 2}, "a question is about one thing"),
        ({"blok": 1}, "nothing is known about a 'blok'"),
        ({"block": 99}, "there is no block 99: the pool has blocks 0 to 11"),
        ({"block": -1}, "whole number from 0 on"),
        ({"block": True}, "whole number from 0 on"),
        ({"block": "3"}, "whole number from 0 on"),
        ({"block": 1, "about": "weather"}, "about is one of 'ref_count', 'lost', 'free', 'queue'"),
        ({"event": 1, "about": "weather"}, "there is but one question"),
        ({"request": 9}, "there is no request 9 at this moment; there are: 0 (A), 1 (B)"),
        ({"hash": "xyz"}, "a hash is bytes"),
        ({"hash": "fffffffff"}, "no block was ever registered"),
        ({"hash": ""}, "a hash is bytes"),
        ({"event": 4000}, "event 4000 is not kept"),
        ({"kind": None, "id": None}, "nothing is known about a None"),
    ],
)
def test_bad_subjects_are_refused_by_name(subject: dict[str, object], message: str) -> None:
    with pytest.raises(WhyError) as error:
        why(recording(MERGED), subject)
    assert message in str(error.value)
    told = answer(None, recording(MERGED), subject)
    assert told["is_error"] and message in told["answer"]


def test_a_moment_that_is_not_kept_is_refused() -> None:
    with pytest.raises(WhyError, match="the recording spans 0 to"):
        why(recording(MERGED), {"block": 1}, 10_000)
    assert answer(None, recording(MERGED), {"block": 1}, -3)["is_error"]


# -- how it looks ------------------------------------------------------------------------------------------------------


def test_an_answer_prints_as_text_and_escapes_as_html() -> None:
    told = Why("Why <b>?", "Because <script>.", (Link(3, 2, "a & b", "C.m", "x < y", -1),))
    assert repr(told).splitlines()[0] == "Why <b>?" and "event    2  -1  a & b" in repr(told)
    html = told._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html and "x &lt; y" in html and "a &amp; b" in html
    assert json.loads(json.dumps(told.to_dict())) == told.to_dict()
    assert told.to_dict()["links"][0]["change"] == -1


def test_a_selection_is_a_subject_too() -> None:
    timeline = recording(MERGED)
    assert why(timeline, {"kind": "block", "id": 0}) == why(timeline, {"block": 0})


def test_a_page_takes_answers_along() -> None:
    carried = carried_answers(recording(OVERWRITTEN), seams_of(NANO_VLLM))
    asked = {(one["subject"]["kind"], one["subject"]["id"], one["subject"]["about"]) for one in carried}
    assert {("block", 0, "lost"), ("block", 4, "ref_count"), ("request", 1, "hit"), ("block", 8, "queue")} <= asked
    assert all(one["moment"] == len(OVERWRITTEN) for one in carried)
    assert json.loads(json.dumps(carried)) == carried


# -- random workloads --------------------------------------------------------------------------------------------------


@pytest.fixture(params=ALL_GROUNDS, ids=str)
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.param  # type: ignore[no-any-return]


def questions(timeline: Timeline, moment: int, rng: Random) -> list[dict[str, object]]:
    """One of each question there is."""
    state = timeline.state(moment)
    block = rng.randrange(len(state.ref_counts))
    asked: list[dict[str, object]] = [{"block": block}, {"next_victim": True}, {"event": rng.randrange(timeline.end)}]
    asked += [{"block": block, "about": about} for about in ABOUT["block"]]
    if state.requests:
        request = rng.choice(list(state.requests))
        asked += [{"request": request}, *({"request": request, "about": about} for about in ABOUT["request"])]
    if state.prefix_map:
        group, hash_bytes = rng.choice(list(state.prefix_map))
        asked.append({"hash": f"{group}:{hash_bytes.hex()}"})
    return asked


def test_on_random_workloads_everything_is_answered_and_ref_counts_add_up(ground: Ground) -> None:
    seams = seams_of(EDITIONS[ground.edition])
    for seed in range(4):
        hooks, timeline = Hooks(strict=True), Timeline()
        hooks.subscribe(timeline.record)
        rng = Random(seed)
        for _ in ground.drive(seed, hooks).operations(Random(seed)):
            pass
        for moment in (rng.randint(1, timeline.end) for _ in range(10)):
            for subject in questions(timeline, moment, rng):
                told = why(timeline, subject, moment, seams=seams)
                assert told.question.endswith("?") and told.answer[-1] in ".!" and "  " not in told.answer, told
                if subject.get("about") == "ref_count":
                    count = timeline.state(moment).ref_counts[subject["block"]]  # type: ignore[call-overload]  # an int
                    assert sum(link.change for link in told.links) == count, (seed, moment, told)
                if "event" not in subject:
                    assert_counts(timeline, moment, told)


def assert_counts(timeline: Timeline, moment: int, told: Why) -> None:
    """No link leads into a step that was broken off by then."""
    events: Sequence[ev.Event] = timeline.events(0, moment)
    alive = set(surviving(events))
    assert all(n in alive for n in numbers(told) if n is not None and n < moment), told


def test_an_opened_trace_answers_as_the_recording_did(tmp_path: Path) -> None:
    run = Run(num_blocks=6, edition="nano-vllm")
    run.add(range(100, 108), 9), run.add(range(200, 208), 9)
    for _ in range(30):
        run.engine.step()
    save(tmp_path / "run.lab", run.timeline, {}, str)
    opened = open_file(tmp_path / "run.lab").timeline
    rng = Random(0)
    for moment in (rng.randint(1, run.timeline.end) for _ in range(8)):
        for subject in questions(run.timeline, moment, rng):
            assert why(opened, subject, moment) == why(run.timeline, subject, moment)


def test_a_recording_that_lost_its_beginning_still_answers() -> None:
    run = Run(num_blocks=8)
    run.timeline.max_events = 20
    run.add(range(100, 109), 20), run.add(range(100, 109), 20)
    for _ in range(9):
        run.engine.step()
    assert run.timeline.num_dropped > 0
    counts = run.timeline.state().ref_counts
    for block, count in enumerate(counts):
        told = run.why(block=block, about="ref_count")
        assert sum(link.change for link in told.links) == count
        run.why(block=block, about="queue"), run.why(block=block)
    assert any(link.event_number is None for link in run.why(block=0, about="ref_count").links)
    for request in (0, 1):
        assert run.why(request=request, about="hit").answer
