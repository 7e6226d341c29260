from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.fold import Fold
from labengine_widgets.words.runs import runs
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import resting_sentence, running_sentence, sentence
from widgets.story_219 import begin, block_hash, merging_step, overwriting_step, schedule_and_forward


def scene_after(events: list[ev.Event]) -> Scene:
    scene = Scene(Fold(), lambda token_id: f" <b>{token_id}</b>\n")
    for event in events:
        scene.apply(event)
    scene.take_changes()
    return scene


def told(before: list[ev.Event], *events: ev.Event) -> list[str]:
    """The sentences of `events`, frame by frame."""
    scene, sentences = scene_after(before), []
    for run in runs(events):
        for event in run.events:
            scene.apply(event)
        scene.take_changes()
        sentences.append(sentence(run.captioned, scene))
    return sentences


def test_the_merging_step_reads_like_a_story() -> None:
    story = told(begin(), *merging_step())
    assert story[0] == "Step 1 begins: whose turn is it, and are there blocks for it?"
    assert story[2] == "A takes 4 blocks from the front of the free queue: #0, #1, #2 and #3."
    assert story[8] == (
        "B's keys and values are written into #4, #5, #6 and #7."
        " p, q and r were in #0, #1 and #2 already: computed twice."
    )
    assert story[10] == "A's #0 is full: p goes into the map, for others to find."
    assert story[14:17] == [
        "#0 is alive and equal: B points at it; #4 goes back.",
        "#1 is alive and equal: B points at it; #5 goes back.",
        "#2 is alive and equal: B points at it; #6 goes back.",
    ]
    assert story[-1] == "Step 1 is over: 5 blocks used. Within the step it was 8."
    assert len(story) == 19


def test_the_overwriting_step_says_what_is_lost() -> None:
    story = told(begin(), *overwriting_step())
    assert story[14] == "B's hash p overwrites the map's entry: #0 is alive, and no look-up finds it."
    assert story[-1] == "Step 1 is over: 8 blocks used. No look-up finds 3 of them any more."


AFTER = begin() + merging_step()
HELD_BY_BOTH = ev.BlockFreed(2, 1, 0, 2, 1, None, "finished")
HASH = block_hash(9)
LOADED = ((0, 1, 1, block_hash(1)), (0, 2, 2, block_hash(2)))


def decoded(*last: ev.Event) -> list[ev.Event]:
    """A's fourth block is filled by two more tokens."""
    return [*AFTER, ev.TokenSampled(0, 8, 15), *last]


@pytest.mark.parametrize(
    ("before", "event", "words"),
    [
        ([], begin()[0], "The engine is empty: 12 blocks, all of them free."),
        (begin()[:1], begin()[1], "A waits in line with 14 tokens, and no blocks yet."),
        (begin(), ev.StepStarted(4), "Step 4 begins"),
        (AFTER, ev.StepEnded(1), "Step 1 is over"),
        (AFTER, ev.StepRolledBack(2, "KeyboardInterrupt"), "Step 2 was broken off (KeyboardInterrupt) and undone"),
        (begin(), ev.PrefixHit(0, 0, ((),)), "A looks its prompt up in the hash map and finds nothing"),
        (AFTER, ev.PrefixHit(1, 8, ((0, 1),)), "B finds its first 8 tokens in the cache, in #0 and #1"),
        (AFTER, ev.RequestScheduled(0, 14, 1, False, "running"), "A will compute the token at position 14"),
        (AFTER, ev.RequestScheduled(0, 0, 8, True, "running"), "A will compute its tokens 0 to 7 in this step."),
        (AFTER, ev.RequestPreempted(1), "There is no room for B"),
        (AFTER, ev.RequestFinished(1, "stop"), "B is finished: it said its end-of-text token."),
        (AFTER, ev.RequestFinished(1, "length"), "B is finished: it has all the tokens it may have."),
        (AFTER, ev.RequestFinished(1, "abort"), "B is finished: it was aborted."),
        (AFTER, ev.RequestForgotten(1), "B had finished, and is kept no longer: newer requests have taken its place."),
        (AFTER, ev.BlockEvicted(6), "#6 is needed anew: what it held is forgotten"),
        (AFTER, ev.BlockAllocated(6, 0, 0, 4), "A takes a block from the front of the free queue: #6."),
        (AFTER, ev.BlockTouched(0, 1, 0, 4, 3), "B shares #0: 3 requests hold it now."),
        (AFTER, ev.BlockTouched(8, 1, 0, 4, 1), "B takes #8 back out of the free queue, content and all."),
        (decoded(), ev.BlockCached(3, 0, 0, 3, HASH, (3,)), "A's #3 is full: s goes into the map"),
        (
            decoded(),
            ev.BlockCached(3, 0, 0, 3, HASH, ()),
            "A's #3 is full, but s stays out of the map: no look-up finds it.",
        ),
        (
            decoded(),
            ev.BlockCached(3, 0, 0, 3, HASH, (2, 3)),
            "A's #3 is full too, but a look-up for s is served with #2",
        ),
        (AFTER, ev.BlockMerged(7, 3, 1, 0, 3, 2), "#3 is alive and equal: B points at it; #7 is not needed."),
        (AFTER, HELD_BY_BOTH, "B lets go of #2; others still hold it."),
        (AFTER, ev.BlockFreed(7, 1, 0, 3, 0, "head", "finished"), "#7; it goes to the front of the free queue"),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "aborted"), "it joins the end of the free queue, content kept."),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "window"), "B lets go of #2 (outside the window now)"),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "preempted"), "B lets go of #2 (no room)"),
        (AFTER, ev.SlotsWritten(0, 0, 14, ((3, 2, 1),)), "A's keys and values are written into #3."),
        (AFTER, ev.ForwardRan(1, 1), "The model has run once, over 1 token of 1 request."),
        (AFTER, ev.TokensComputed(0, 15), "Keys and values are computed for A's first 15 tokens."),
        (AFTER, ev.TokenSampled(0, 9, 15), "A's next token is “<b>9</b>⏎”"),
        (AFTER, ev.BlockEvicted(6, "reset"), "#6 is emptied: what it held is forgotten"),
        (AFTER, ev.BlockEvicted(6, "replaced"), "#6 has grown: what it held is forgotten"),
        (AFTER, ev.BlockEvicted(6, "distrusted"), "#6 cannot be trusted after a broken step"),
        (AFTER, ev.BlocksSkipped(0, 0, 2), "A's first 2 blocks lie outside the full group's window"),
        (AFTER, ev.ExternalHit(0, 8), "The external tier holds A's next 8 tokens: no need to compute them either."),
        (AFTER, ev.ExternalHit(0, 8, True), "The external tier holds A's next 8 tokens: A waits until they are there."),
        (AFTER, ev.BlocksLoaded(0, LOADED), "Keys and values come from the external tier into #1 and #2, for A."),
        (AFTER, ev.BlocksSaved(0, LOADED), "A's full #1 and #2 are copied to the external tier."),
        (AFTER, ev.LoadFailed(0, "gone\n"), "The external tier could not deliver (gone⏎): A will compute it instead."),
        (AFTER, ev.PrefixCacheReset(), "The hash map is emptied"),
        (
            AFTER,
            ev.StepFailed(2, "RuntimeError", "freed <twice>", "BlockPool.release"),
            "Step 2 fails here. RuntimeError in BlockPool.release: freed <twice>. This is what was held",
        ),
        (AFTER, ev.ViolationFound("read", "A reads B's KV", (0,), (1,), 1, None), "A rule is broken: A reads B's KV."),
    ],
)
def test_every_kind_of_event_has_its_sentence(before: list[ev.Event], event: ev.Event, words: str) -> None:
    (line,) = told(before, event)
    assert words in line


def test_no_kind_of_event_was_forgotten() -> None:
    (table,) = (m for m in test_every_kind_of_event_has_its_sentence.pytestmark if m.name == "parametrize")
    assert {type(row[1]) for row in table.args[1]} == set(ev.EVENT_KINDS)


def test_blocks_that_go_together_are_told_together() -> None:
    ends = ("tail", "tail", "head")
    frees = [ev.BlockFreed(2 - i, 0, 0, 2 - i, 0, end, "finished") for i, end in enumerate(ends)]
    (line,) = told([*AFTER, ev.BlockFreed(3, 0, 0, 3, 0, "head", "finished")], *frees)
    assert (
        line == "A lets go of #2, #1 and #0; all join the free queue, those without content at its front, content kept."
    )


def test_a_copy_that_is_freed_before_its_merge_has_a_sentence() -> None:
    """A part may do it in that order."""
    tables = [ev.BlockAllocated(0, 0, 0, 0), ev.BlockAllocated(4, 1, 0, 0)]
    freed, merged = ev.BlockFreed(4, 1, 0, 0, 0, "head", "merged"), ev.BlockMerged(4, 0, 1, 0, 0, 2)
    (line,) = told([*begin(), *tables], freed, merged)
    assert line.startswith("B lets go of #4; it goes to the front of the free queue")


def test_a_long_row_of_merges_is_one_sentence() -> None:
    tables = [ev.BlockAllocated(i, 0, 0, i) for i in range(6)] + [ev.BlockAllocated(6 + i, 1, 0, i) for i in range(6)]
    merges = [ev.BlockMerged(6 + i, i, 1, 0, i, 2) for i in range(6)]
    (line,) = told([*begin(), *tables], *merges)
    assert line == (
        "#0, #1, #2, #3, #4 and #5 are alive and equal: B points at them; #6, #7, #8, #9, #10 and #11 are not needed."
    )


def test_at_rest_and_running() -> None:
    assert resting_sentence(scene_after(begin()[:1])).startswith("12 blocks, 0 used, and nobody waits")
    assert resting_sentence(scene_after(begin())) == "A and B are in line: take a step, and watch the blocks."
    computed = scene_after([*begin(), *schedule_and_forward()])
    assert resting_sentence(computed) == "After step 1: 8 blocks used."
    waiting = scene_after([*begin(), *schedule_and_forward(), ev.RequestAdded(2, (1,), 1)])
    assert running_sentence(waiting) == "Step 1: 2 requests running, 1 in line, 8 blocks used."
