from __future__ import annotations

import re

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


def names_in(line: str) -> str:
    """Return the requests, blocks, contents and numbers that a sentence names, in order."""
    return " ".join(re.findall(r"#\d+|\b[A-H]\b|(?<!')\b[p-s]\b|\b\d+\b", line))


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
    story = [names_in(line) for line in sentences_of(begin(), *merging_step())]
    assert story[0] == "1" and story[2] == "4 A #0 #1 #2 #3"
    assert story[8] == "B 0 13 #4 #5 #6 #7 p q r #0 #1 #2", "its last three are computed twice"
    assert story[10] == "A #0 p"
    assert story[14:17] == ["B #4 #0 B #0 #4", "B #5 #1 B #1 #5", "B #6 #2 B #2 #6"]
    assert story[-1] == "1 5 8", "step, used, peak"
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
    assert names_in(story[14]) == "B #4 p #0" and "overwrites" in story[14]
    assert names_in(story[-1]) == "1 8 3" and "lost" in story[-1]


AFTER = begin() + merging_step()
HELD_BY_BOTH = ev.BlockFreed(2, 1, 0, 2, 1, None, "finished")
HASH = block_hash(9)
LOADED = ((0, 1, 1, block_hash(1)), (0, 2, 2, block_hash(2)))


def decoded(*last: ev.Event) -> list[ev.Event]:
    """A's fourth block is filled by two more tokens."""
    return [*AFTER, ev.TokenSampled(0, 8, 15), *last]


@pytest.mark.parametrize(
    ("before", "event", "facts"),
    [
        (begin()[:1], begin()[1], ("A", "waiting queue", "14 prompt tokens")),
        (AFTER, ev.StepEnded(1), ("Step 1", "5 blocks used.")),
        (begin(), ev.PrefixHit(0, 0, ((),)), ("A", "finds nothing")),
        (AFTER, ev.PrefixHit(1, 8, ((0, 1),)), ("B", "8 tokens", "#0 and #1")),
        (AFTER, ev.PrefixHit(1, 0, ((),), True), ("B", "skips")),
        (AFTER, ev.RequestScheduled(0, 14, 1, False, "running"), ("A", "position 14.")),
        (AFTER, ev.RequestScheduled(0, 0, 8, True, "running"), ("A", "positions 0 to 7.")),
        (AFTER, ev.RequestFinished(1, "abort"), ("B", "aborted")),
        (AFTER, ev.RequestFinished(1, "stop", True), ("B", "holds its blocks", "connector")),
        (AFTER, ev.RequestFinished(1, "moved", True), ("B", "lab", "holds its blocks")),
        (AFTER, ev.RequestHandedOver(1, "lab <2>", 26, 12), ("B", "lab <2>", "AA", "12 tokens")),
        (AFTER, ev.RequestReceived(1, ((0, 1, 5, b""),), "lab 2", 0, 1), ("B", "lab 2", "A", "1 token.")),
        (AFTER, ev.FreeDeferred(0, 0, (0, 1)), ("A", "#0 and #1")),
        (AFTER, ev.BlockPinned(0, 2), ("#0", "ref count 2")),
        (AFTER, ev.BlockUnpinned(0, 0, "tail"), ("#0", "free queue", "tail")),
        (AFTER, ev.BlockCopied(3, 6, 0, 0, 3), ("A", "hit", "#3", "table[3]", "#6")),
        (AFTER, ev.BlockCopied(3, 6, 0, 0, 3, False), ("A", "write to #3", "table[3]", "#6")),
        (AFTER, ev.RequestAdded(2, (1, 2), 4, 0, 0), ("C", "2 tokens", "A", "forks")),
        (AFTER, ev.RequestAdded(2, (1, 2), 4, 1), ("C", "2 tokens", "1 of them")),
        (AFTER, ev.RequestForked(1, 0, 14, ((0, 1, 2, 3),)), ("B forks from A", "14 tokens", "#3 with 2 of 4 slots")),
        (AFTER, ev.BeamReplaced(1, (5, 6), 0), ("B", "continues from A")),
        (AFTER, ev.BlockTouched(0, 1, 0, 4, 3, True), ("#0", "fork B", "ref count 3")),
        (AFTER, ev.BlockTouched(0, 1, 0, 4, 3), ("#0", "shared with B", "ref count 3")),
        (AFTER, ev.BlockTouched(8, 1, 0, 4, 1), ("#8", "out of the free queue", "B")),
        (AFTER, ev.StateAdvanced(0, 0, 6, 0, 12), ("A", "12 tokens", "#6")),
        (AFTER, ev.StateAdvanced(0, 0, 6, 12, 13), ("A", "12 tokens", "13 tokens", "#6")),
        (AFTER, ev.BlockAllocated(6, 0, 0, 4), ("1 block", "A", "head of the free queue", "#6")),
        (decoded(), ev.BlockCached(3, 0, 0, 3, HASH, (3,)), ("A's #3", "joins the prefix map", "for s find it")),
        (decoded(), ev.BlockCached(3, 0, 0, 3, HASH, ()), ("A's #3", "does not list it", "no look-up for s")),
        (decoded(), ev.BlockCached(3, 0, 0, 3, HASH, (2, 3)), ("A's #3", "joins", "for s finds #2 first")),
        (decoded(), ev.BlockCached(3, 0, 0, 3, HASH, (3,), False), ("#3 holds the end of a prompt",)),
        (AFTER, ev.BlockMerged(7, 3, 1, 0, 3, 2), ("B's #7", "equal #3", "points to #3", "no longer needed")),
        (AFTER, HELD_BY_BOTH, ("B frees #2 (finished)", "table entries still point to it")),
        (AFTER, ev.BlockFreed(7, 1, 0, 3, 0, "head", "finished"), ("#7 (finished)", "head")),
        (AFTER, ev.BlockFreed(2, 1, 0, 2, 0, "tail", "aborted"), ("#2 (aborted)", "tail", "content kept")),
        (AFTER, ev.SlotsWritten(0, 0, 14, ((3, 2, 1),)), ("position 14", "#3, slot 14.")),
        (AFTER, ev.TokenSampled(0, 9, 15), ("A", "position 15", "“<b>9</b>⏎”")),
        (AFTER, ev.TokensDrafted(0, (9, 9)), ("A", "“<b>9</b>⏎” and “<b>9</b>⏎”")),
        (AFTER, ev.DraftsJudged(0, 2, 0), ("All 2 of A's drafts are accepted",)),
        (AFTER, ev.DraftsJudged(0, 1, 2), ("A", "1 draft accepted", "2 rejected")),
        (AFTER, ev.BlocksSkipped(0, 0, 2), ("A's table of the full group continues", "2 null entries")),
        (AFTER, ev.BlocksLoaded(0, LOADED), ("external tier", "A's #1 and #2.")),
        (AFTER, ev.LoadFailed(0, "gone\n"), ("A's blocks (gone⏎)",)),
        (
            AFTER,
            ev.TierChanged(((0, b"a"), (0, b"b")), ((0, b"c"),), ((0, b"a", 1), (0, b"b", 0))),
            ("1 block leaves", "2 blocks are stored", "1 block of the external tier is pinned", "is no longer pinned"),
        ),
        (
            AFTER,
            ev.StepFailed(2, "RuntimeError", "freed <twice>", "BlockPool.release"),
            ("Step 2", "BlockPool.release: RuntimeError: freed <twice>."),
        ),
        (AFTER, ev.ViolationFound("read", "A reads B's KV", (0,), (1,), 1, None), ("Rule read", "A reads B's KV.")),
        (
            AFTER,
            ev.DecisionDiffered("Mine.choose_victim", "Scheduler.choose_victim", "request 0", "request 1", 1),
            ("Mine.choose_victim", "Scheduler.choose_victim about B", "request 0 instead of request 1"),
        ),
    ],
)
def test_a_sentence_has_the_facts_of_its_event(before: list[ev.Event], event: ev.Event, facts: tuple[str, ...]) -> None:
    (line,) = sentences_of(before, event)
    assert [fact for fact in facts if not re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", line)] == [], line


@pytest.mark.parametrize(
    ("at_head", "which"),
    [((3,), "those without content at the head"), ((1, 3), "#3 and #1 at the head"), ((1,), "#1 at the head")],
)
def test_blocks_that_go_together_are_described_together(at_head: tuple[int, ...], which: str) -> None:
    """A's #3 is not full. A policy may send any of them to the head."""
    frees = [ev.BlockFreed(i, 0, 0, i, 0, "head" if i in at_head else "tail", "finished") for i in (3, 2, 1, 0)]
    (line,) = sentences_of(AFTER, *frees)
    assert line.startswith("A frees #3, #2, #1 and #0 (finished); all join") and f", {which}, and" in line


def test_a_copy_and_the_reference_that_it_replaces_share_a_sentence() -> None:
    copied, freed = ev.BlockCopied(3, 6, 0, 0, 3, False), ev.BlockFreed(3, 0, 0, 3, 1, None, "copied")
    (line,) = sentences_of([*AFTER, ev.BlockTouched(3, 1, 0, 4, 2, True)], copied, freed)
    assert names_in(line) == "A #3 A 3 #6 1 #3"


def test_siblings_that_wait_share_a_sentence() -> None:
    added = [ev.RequestAdded(i, (1, 2), 4, 0, 0) for i in (2, 3)]
    (line,) = sentences_of(AFTER, *added)
    assert line.startswith("C and D have") and " A" in line


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
    assert names_in(line) == "B #6 #7 #8 #9 #10 #11 #0 #1 #2 #3 #4 #5 B"


def test_a_view_that_opens_has_a_caption() -> None:
    assert opening_sentence(scene_after(begin()[:1])).startswith("12 blocks, 0 used")
    assert opening_sentence(scene_after(begin())).startswith("A and B are in the waiting queue")
    computed = scene_after([*begin(), *schedule_and_forward()])
    assert names_in(opening_sentence(computed)) == "1 8"


def test_neighbours_that_are_alike_share_one_sentence() -> None:
    scheduled = [ev.RequestScheduled(0, 14, 1, False, "running"), ev.RequestScheduled(1, 14, 1, False, "running")]
    assert [names_in(line) for line in sentences_of(AFTER, *scheduled)] == ["A B 1"]
    scheduled = [ev.RequestScheduled(0, 14, 1, False, "running"), ev.RequestScheduled(1, 0, 14, True, "waiting")]
    assert [names_in(line) for line in sentences_of(AFTER, *scheduled)] == ["A B 1 A 14 B"]
    sampled = [ev.TokenSampled(0, 9, 15), ev.TokenSampled(1, -1, 15)]
    (line,) = sentences_of(AFTER, *sampled)
    assert "A's is “<b>9</b>⏎” and B's is not known yet" in line
