from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.record.fold import Fold
from labengine_widgets.words.event_runs import runs
from labengine_widgets.words.scene import Scene
from labengine_widgets.words.sentences import opening_sentence, sentence
from widgets.story_219 import begin, block_hash, merging_step, overwriting_step, schedule_and_forward


def scene_after(events: list[ev.Event]) -> Scene:
    scene = Scene(Fold(), lambda token_id: f" <b>{token_id}</b>\n")
    for event in events:
        scene.apply(event)
    scene.update()
    return scene


def sentences_of(before: list[ev.Event], *events: ev.Event) -> list[str]:
    """The sentences of `events`, frame by frame."""
    scene, sentences = scene_after(before), []
    for run in runs(events):
        for event in run.events:
            scene.apply(event)
        scene.update()
        sentences.append(sentence(run.captioned, scene))
    return sentences


def test_the_merging_step_reads_like_a_story() -> None:
    story = sentences_of(begin(), *merging_step())
    assert story[0] == "Step 1 begins."
    assert story[2] == "4 blocks are allocated to A from the head of the free queue: #0, #1, #2 and #3."
    assert story[8] == (
        "B's keys and values of positions 0 to 13 are written into #4, #5, #6 and #7."
        " p, q and r are in #0, #1 and #2 already: computed twice."
    )
    assert story[10] == "A's #0 is full and joins the prefix map: look-ups for p find it."
    assert story[14:17] == [
        "B's #4 is merged into the equal #0: B's table points to #0, and #4 is freed.",
        "B's #5 is merged into the equal #1: B's table points to #1, and #5 is freed.",
        "B's #6 is merged into the equal #2: B's table points to #2, and #6 is freed.",
    ]
    assert story[-1] == "Step 1 ends: 5 blocks used. The peak within the step was 8."
    assert len(story) == 19


@pytest.mark.parametrize(
    ("block_ids", "words"),
    [
        ((8, 9), "from the head of the free queue: #8 and #9."),
        ((11,), "from the free queue: #11; #11 was not at its head."),
        ((8, 11, 10), "from the free queue: #8, #11 and #10; #11 and #10 were not at its head."),
        ((0, 11), "from the free queue: #0 and #11; #11 was not at its head; #0 was not in it."),
    ],
)
def test_a_block_that_is_taken_out_of_turn_is_told(block_ids: tuple[int, ...], words: str) -> None:
    before = [*begin(), *(ev.BlockAllocated(i, 0, 0, i) for i in range(8))]
    (said,) = sentences_of(before, *(ev.BlockAllocated(i, 1, 0, at) for at, i in enumerate(block_ids)))
    are = "block is" if len(block_ids) == 1 else "blocks are"
    assert said == f"{len(block_ids)} {are} allocated to B {words}"


def test_the_overwriting_step_says_what_is_lost() -> None:
    story = sentences_of(begin(), *overwriting_step())
    lost = "#0 is still in use, but no look-up finds it."
    assert story[14] == f"B's #4 is full and overwrites the map's entry for p: {lost}"
    assert story[-1] == "Step 1 ends: 8 blocks used, and 3 of them lost."


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
        ([], begin()[0], "The engine starts: 12 blocks, all free."),
        (begin()[:1], begin()[1], "A joins the waiting queue with 14 prompt tokens, and no blocks yet."),
        (begin(), ev.StepStarted(4), "Step 4 begins."),
        (AFTER, ev.StepEnded(1), "Step 1 ends: 5 blocks used."),
        (AFTER, ev.StepRolledBack(2, "KeyboardInterrupt"), "Step 2 is rolled back (KeyboardInterrupt)"),
        (begin(), ev.PrefixHit(0, 0, ((),)), "A looks up its prompt in the prefix cache and finds nothing"),
        (AFTER, ev.PrefixHit(1, 8, ((0, 1),)), "finds its first 8 tokens, in #0 and #1"),
        (
            AFTER,
            ev.RequestScheduled(0, 14, 1, False, "running"),
            "A is scheduled: the step computes its token at position 14.",
        ),
        (
            AFTER,
            ev.RequestScheduled(0, 0, 8, True, "running"),
            "A is scheduled: the step computes its tokens at positions 0 to 7.",
        ),
        (AFTER, ev.RequestPreempted(1), "B is preempted: it gives way"),
        (AFTER, ev.RequestFinished(1, "stop"), "B is finished: it sampled its end-of-text token."),
        (AFTER, ev.RequestFinished(1, "length"), "B is finished: it has all the tokens it may have."),
        (AFTER, ev.RequestFinished(1, "abort"), "B is finished: it was aborted."),
        (AFTER, ev.RequestFinished(1, "stop", True), "holds its blocks until the connector is done with them."),
        (AFTER, ev.RequestFinished(1, "moved", True), "B leaves this lab for another one, and holds its blocks until"),
        (AFTER, ev.RequestReleased(1), "B's blocks have been read: they are freed."),
        (
            AFTER,
            ev.RequestHandedOver(1, "lab <2>", 26, 12),
            "B has moved to lab <2>, where it is AA, with keys and values of its first 12 tokens.",
        ),
        (
            AFTER,
            ev.RequestReceived(1, ((0, 1, 5, b""),), "lab 2", 0, 1),
            "B has come from lab 2, where it was A, with keys and values of its first 1 token.",
        ),
        (AFTER, ev.PrefixHit(1, 0, ((),), True), "B is not to read the prefix cache: nothing is looked up"),
        (AFTER, ev.FreeDeferred(0, 0, (0, 1)), "A gives up #0 and #1: freed once the steps under way have ended."),
        (AFTER, ev.BlockPinned(0, 2), "#0 is pinned: it gets a reference that is of no table, ref count 2."),
        (AFTER, ev.BlockUnpinned(0, 0, "tail"), "#0 loses a reference that is of no table; it joins the free queue"),
        (AFTER, ev.BlockCopied(3, 6, 0, 0, 3), "A's hit ends inside #3: A's table[3] points to #6, a copy of it."),
        (
            AFTER,
            ev.BlockCopied(3, 6, 0, 0, 3, False),
            "A is about to write to #3, which others share: A's table[3] points to #6, a copy of it.",
        ),
        (
            AFTER,
            ev.RequestAdded(2, (1, 2), 4, 0, 0),
            "C has the 2 tokens of A, and waits until they are computed, to fork from it.",
        ),
        (
            AFTER,
            ev.RequestAdded(2, (1, 2), 4, 1),
            "C is added with 2 tokens, 1 of them generated by the request that it goes on from.",
        ),
        (
            AFTER,
            ev.RequestForked(1, 0, 14, ((0, 1, 2, 3),)),
            "B forks from A and runs: it shares the blocks of its first 14 tokens, #3 with 2 of 4 slots filled.",
        ),
        (
            AFTER,
            ev.BeamReplaced(1, (5, 6), 0),
            "B does not go on as a beam, and gets the tokens of A, which goes on twice or more.",
        ),
        (AFTER, ev.BlockTouched(0, 1, 0, 4, 3, True), "#0 is shared with the fork B: ref count 3."),
        (
            AFTER,
            ev.SharedPrefixFound(1, 12),
            "Some groups hit B's first 12 tokens, and others have dropped theirs: they are cached there again.",
        ),
        (AFTER, ev.SharedPrefixFound(1, 0), "All groups agree now on what B hits."),
        (
            AFTER,
            ev.StateCopied(0, 6, 0, 0, 12),
            "A's state after 12 tokens goes on in #6: it is copied there from #0.",
        ),
        (
            AFTER,
            ev.BlockMoved(6, 0, 0, 2, 5),
            "A's scratch #6 moves behind the running state, to entry 5 of its table.",
        ),
        (AFTER, ev.StateAdvanced(0, 0, 6, 0, 12), "A's state after 12 tokens is written into #6."),
        (
            AFTER,
            ev.StateAdvanced(0, 0, 6, 12, 13),
            "A's state after 12 tokens goes on to that after 13 tokens, which is written into #6.",
        ),
        (AFTER, ev.HashesMoved(0, 6), "The hashes of #0 move to #6, which holds the same content."),
        (AFTER, ev.RequestForgotten(1), "B is finished, and no longer kept: newer requests have taken its place."),
        (AFTER, ev.BlockEvicted(6), "#6 is evicted from the prefix cache (allocated anew)."),
        (AFTER, ev.BlockAllocated(6, 0, 0, 4), "1 block is allocated to A from the head of the free queue: #6."),
        (AFTER, ev.BlockTouched(0, 1, 0, 4, 3), "#0 is found by its hash and shared with B: ref count 3."),
        (AFTER, ev.BlockTouched(8, 1, 0, 4, 1), "#8 is found by its hash and taken back out of the free queue, for B."),
        (
            decoded(),
            ev.BlockCached(3, 0, 0, 3, HASH, (3,)),
            "A's #3 is full and joins the prefix map: look-ups for s find it.",
        ),
        (
            decoded(),
            ev.BlockCached(3, 0, 0, 3, HASH, ()),
            "A's #3 is full, but the prefix map does not list it: no look-up for s finds it.",
        ),
        (
            decoded(),
            ev.BlockCached(3, 0, 0, 3, HASH, (2, 3)),
            "A's #3 is full and joins the prefix map, but a look-up for s finds #2 first.",
        ),
        (
            AFTER,
            ev.BlockMerged(7, 3, 1, 0, 3, 2),
            "B's #7 is merged into the equal #3: B's table points to #3, and #7 is no longer needed.",
        ),
        (AFTER, HELD_BY_BOTH, "B frees #2 (finished); other table entries still point to it."),
        (
            AFTER,
            ev.BlockFreed(7, 1, 0, 3, 0, "head", "finished"),
            "#7 (finished); it joins the free queue at the head, to be reused next.",
        ),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "aborted"), "it joins the free queue at the tail, content kept."),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "window"), "B frees #2 (outside the window now)"),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "preempted"), "B frees #2 (preempted)"),
        (AFTER, ev.SlotsWritten(0, 0, 14, ((3, 2, 1),)), "of position 14 are written into #3, slot 14."),
        (AFTER, ev.ForwardRan(1, 1), "The model runs once, over 1 token of 1 request."),
        (AFTER, ev.TokensComputed(0, 15), "A now has keys and values of its first 15 tokens."),
        (AFTER, ev.TokenSampled(0, 9, 15), "A's next token, at position 15, is “<b>9</b>⏎”"),
        (AFTER, ev.TokensDrafted(0, (9, 9)), "A's next tokens are guessed: “<b>9</b>⏎” and “<b>9</b>⏎”."),
        (AFTER, ev.DraftsJudged(0, 2, 0), "All 2 of A's drafts are accepted: the model samples the same tokens."),
        (AFTER, ev.DraftsJudged(0, 1, 2), "A: 1 draft accepted, 2 rejected: what the step wrote for them is garbage"),
        (AFTER, ev.BlockEvicted(6, "reset"), "#6 is evicted from the prefix cache (the cache is reset)."),
        (AFTER, ev.BlockEvicted(6, "replaced"), "#6 is evicted from the prefix cache (replaced by a longer prefix)."),
        (
            AFTER,
            ev.BlockEvicted(6, "distrusted"),
            "#6 is evicted from the prefix cache (not trusted after a failed step).",
        ),
        (AFTER, ev.BlocksSkipped(0, 0, 2), "A's table of the full group goes on with 2 null entries"),
        (AFTER, ev.ExternalHit(0, 8), "The external tier holds A's next 8 tokens, which need not be computed."),
        (AFTER, ev.ExternalHit(0, 8, True), "The external tier holds A's next 8 tokens: A waits for the load."),
        (AFTER, ev.BlocksLoaded(0, LOADED), "Keys and values are loaded from the external tier into A's #1 and #2."),
        (AFTER, ev.BlocksSaved(0, LOADED), "A's full #1 and #2 are copied to the external tier."),
        (
            AFTER,
            ev.LoadFailed(0, "gone\n"),
            "The external tier cannot load A's blocks (gone⏎): A computes the tokens instead.",
        ),
        (
            AFTER,
            ev.TierChanged(((0, b"a"), (0, b"b")), ((0, b"c"),), ((0, b"a", 1), (0, b"b", 0))),
            "1 block leaves the external tier; 2 blocks of another engine are put into the external tier; 1 block of "
            "the external tier is pinned by transfers; 1 block of the external tier is pinned no more.",
        ),
        (AFTER, ev.PrefixCacheReset(), "The prefix cache is reset"),
        (
            AFTER,
            ev.StepFailed(2, "RuntimeError", "freed <twice>", "BlockPool.release"),
            "Step 2 fails in BlockPool.release: RuntimeError: freed <twice>.",
        ),
        (
            AFTER,
            ev.ViolationFound("read", "A reads B's KV", (0,), (1,), 1, None),
            "Rule read is broken: A reads B's KV.",
        ),
        (
            AFTER,
            ev.DecisionDiffered("Mine.choose_victim", "Scheduler.choose_victim", "request 0", "request 1", 1),
            "Mine.choose_victim decides otherwise than Scheduler.choose_victim about B on the same state: request 0 "
            "instead of request 1.",
        ),
    ],
)
def test_every_kind_of_event_has_its_sentence(before: list[ev.Event], event: ev.Event, words: str) -> None:
    (line,) = sentences_of(before, event)
    assert words in line


def test_no_kind_of_event_was_forgotten() -> None:
    (table,) = (m for m in test_every_kind_of_event_has_its_sentence.pytestmark if m.name == "parametrize")
    assert {type(row[1]) for row in table.args[1]} == set(ev.EVENT_KINDS)


@pytest.mark.parametrize(
    ("at_head", "which"),
    [((3,), "those without content at the head"), ((1, 3), "#3 and #1 at the head"), ((1,), "#1 at the head")],
)
def test_blocks_that_go_together_are_described_together(at_head: tuple[int, ...], which: str) -> None:
    """A's #3 is not full. A policy may send any of them to the head."""
    frees = [ev.BlockFreed(i, 0, 0, i, 0, "head" if i in at_head else "tail", "finished") for i in (3, 2, 1, 0)]
    (line,) = sentences_of(AFTER, *frees)
    freed = "A frees #3, #2, #1 and #0 (finished); all join the free queue"
    assert line == f"{freed}, {which}, and the full ones keep their content."


def test_a_copy_and_the_reference_that_it_replaces_share_a_sentence() -> None:
    copied, freed = ev.BlockCopied(3, 6, 0, 0, 3, False), ev.BlockFreed(3, 0, 0, 3, 1, None, "copied")
    assert sentences_of([*AFTER, ev.BlockTouched(3, 1, 0, 4, 2, True)], copied, freed) == [
        "A is about to write to #3, which others share: A's table[3] points to #6, a copy of it. 1 table entry still "
        "points to #3."
    ]


def test_siblings_that_wait_share_a_sentence() -> None:
    added = [ev.RequestAdded(i, (1, 2), 4, 0, 0) for i in (2, 3)]
    words = "C and D have the tokens of A, and wait until they are computed, to fork from it."
    assert sentences_of(AFTER, *added) == [words]


def test_a_copy_that_is_freed_before_its_merge_has_a_sentence() -> None:
    """A part may do it in that order."""
    tables = [ev.BlockAllocated(0, 0, 0, 0), ev.BlockAllocated(4, 1, 0, 0)]
    freed, merged = ev.BlockFreed(4, 1, 0, 0, 0, "head", "merged"), ev.BlockMerged(4, 0, 1, 0, 0, 2)
    (line,) = sentences_of([*begin(), *tables], freed, merged)
    assert line.startswith("B frees #4 (its copy was merged); it joins the free queue at the head")


def test_a_long_row_of_merges_is_one_sentence() -> None:
    tables = [ev.BlockAllocated(i, 0, 0, i) for i in range(6)] + [ev.BlockAllocated(6 + i, 1, 0, i) for i in range(6)]
    merges = [ev.BlockMerged(6 + i, i, 1, 0, i, 2) for i in range(6)]
    (line,) = sentences_of([*begin(), *tables], *merges)
    assert line == (
        "B's #6, #7, #8, #9, #10 and #11 are merged into the equal #0, #1, #2, #3, #4 and #5: "
        "B's table points there, and the copies are no longer needed."
    )


def test_a_view_that_opens_has_a_caption() -> None:
    assert opening_sentence(scene_after(begin()[:1])).startswith("12 blocks, 0 used, and no request")
    assert (
        opening_sentence(scene_after(begin())) == "A and B are in the waiting queue: take a step, and watch the blocks."
    )
    computed = scene_after([*begin(), *schedule_and_forward()])
    assert opening_sentence(computed) == "After step 1: 8 blocks used."


def test_neighbours_that_are_alike_share_one_sentence() -> None:
    scheduled = [ev.RequestScheduled(0, 14, 1, False, "running"), ev.RequestScheduled(1, 14, 1, False, "running")]
    assert sentences_of(AFTER, *scheduled) == ["A and B are scheduled: the step computes 1 token of each."]
    scheduled = [ev.RequestScheduled(0, 14, 1, False, "running"), ev.RequestScheduled(1, 0, 14, True, "waiting")]
    words = "A and B are scheduled: the step computes 1 token of A and 14 tokens of B."
    assert sentences_of(AFTER, *scheduled) == [words]
    sampled = [ev.TokenSampled(0, 9, 15), ev.TokenSampled(1, -1, 15)]
    assert sentences_of(AFTER, *sampled) == [
        "The next tokens are sampled: A's is “<b>9</b>⏎” and B's is not known yet. They have no keys and values yet."
    ]
