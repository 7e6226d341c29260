"""Captions: one sentence for a run of events, from the events and the state after them. Plain, untrusted text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from labengine import events as ev
from labengine.record.wording import counted, group_name
from labengine_widgets.words.admission import (
    drafts_judged,
    prefix_hit,
    request_added,
    request_scheduled,
    token_sampled,
    tokens_drafted,
)
from labengine_widgets.words.mentions import Sentence, listing, the_block, the_blocks, the_request, the_requests
from labengine_widgets.words.phrases import phrase, state_phrase, word
from labengine_widgets.words.prefix_tree import locks_changed, node_evicted, node_inserted, node_split
from labengine_widgets.words.scene import Scene

E = TypeVar("E", bound=ev.Event)
Wording = Callable[[Any, Scene], Sentence]
_WORDINGS: dict[type[ev.Event], Wording] = {
    ev.RequestAdded: request_added,
    ev.PrefixHit: prefix_hit,
    ev.RequestScheduled: request_scheduled,
    ev.TokenSampled: token_sampled,
    ev.TokensDrafted: tokens_drafted,
    ev.DraftsJudged: drafts_judged,
    ev.NodeInserted: node_inserted,
    ev.NodeSplit: node_split,
    ev.NodeLocked: locks_changed,
    ev.NodeUnlocked: locks_changed,
    ev.NodeEvicted: node_evicted,
}

MAX_BLOCKS_WITH_TWINS = 2048
"""Maximum pool size, in blocks, for saying that a content was computed twice: it takes a look at all used blocks."""


def sentence(run: Sequence[ev.Event], scene: Scene) -> Sentence:
    """Return the sentence for one event, or for a run of events (words.runs).

    scene: the state just after the run. For impossible events, as faulty parts emit, the state may lack the subject of
    the sentence; the sentence then describes only the first event.
    """
    if (wording := _WORDINGS.get(type(run[0]))) is None:
        return phrase(run[0])
    try:
        return wording(run, scene)
    except (IndexError, KeyError):
        if not scene.fold.num_impossible:
            raise
        return phrase(run[0])


def opening_sentence(scene: Scene) -> Sentence:
    """Return the caption for a view that opens at this state."""
    open_ids = [i for i, request in scene.fold.requests.items() if request.status != "finished"]
    if scene.fold.step:
        return paused_sentence(scene) if open_ids else finished_sentence(scene)
    if not open_ids:
        return state_phrase("empty", {"num_blocks": scene.num_blocks, "used": scene.num_used})
    return state_phrase("waiting", {"requests": the_requests(open_ids), "num_waiting": len(open_ids)})


def finished_sentence(scene: Scene) -> Sentence:
    """Return the caption when all requests are finished."""
    score = scene.score
    numbers = {
        "step": scene.fold.step,
        "used_blocks": score.used_blocks,
        "findable": 0 if score.used else score.findable,
    }
    return state_phrase("finished", numbers)


def paused_sentence(scene: Scene) -> Sentence:
    """Return the caption of a paused lab for a view that opens now."""
    score = scene.score
    numbers = {"step": scene.fold.step, "used_blocks": score.used_blocks, "lost": score.lost}
    return state_phrase("stepped", numbers)


def _words(kind: type[E]) -> Callable[[Callable[[Sequence[E], Scene], Sentence]], Wording]:
    def register(wording: Callable[[Sequence[E], Scene], Sentence]) -> Wording:
        _WORDINGS[kind] = wording
        return wording

    return register


def _blocks(run: Sequence[Any]) -> Sentence:
    return listing(the_block(event.block_id) for event in run)


def _contents(block_ids: Collection[int], scene: Scene) -> Sentence:
    return listing(scene.letter(block_id) for block_id in block_ids if scene.filling.content(block_id) >= 0)


def _plural(run: Sequence[Any], one: str, many: str) -> str:
    return one if len(run) == 1 else many


@_words(ev.StepEnded)
def _step_ended(run: Sequence[ev.StepEnded], scene: Scene) -> Sentence:
    score = scene.score
    end = f". The peak within the step was {score.peak}." if score.peak > score.used else "."
    end = f", and {score.lost} of them lost." if score.lost else end
    return Sentence(phrase(run[0]).without_stop(), f": {score.used_blocks}{end}")


@_words(ev.StepFailed)
def _step_failed(run: Sequence[ev.StepFailed], scene: Scene) -> Sentence:
    return Sentence(phrase(run[0]), " This is the state at that moment.")


@_words(ev.RequestForgotten)
def _request_forgotten(run: Sequence[ev.RequestForgotten], scene: Scene) -> Sentence:
    if len(run) == 1:
        return phrase(run[0])
    names = the_requests(event.request_id for event in run)
    return Sentence(names, " are finished and have been dropped to make room for newer requests.")


@_words(ev.BlockEvicted)
def _block_evicted(run: Sequence[ev.BlockEvicted], scene: Scene) -> Sentence:
    if len(run) == 1:
        return phrase(run[0])
    return Sentence(_blocks(run), f" are evicted from the prefix cache ({word('evicted', run[0].reason)}).")


@_words(ev.BlockAllocated)
def _block_allocated(run: Sequence[ev.BlockAllocated], scene: Scene) -> Sentence:
    blocks, are = counted(len(run), "block"), _plural(run, "is", "are")
    behind = [event.block_id for event in run if scene.taken_from.get(event.block_id) == "behind"]
    outside = [event.block_id for event in run if scene.taken_from.get(event.block_id) == "outside"]
    where = f" from the {'' if behind or outside else 'head of the '}free queue{_for_group(run[0], scene)}: "
    told = Sentence(f"{blocks} {are} allocated to ", the_request(run[0].request_id), where, _blocks(run))
    return Sentence(told, *_was_not(behind, "at its head"), *_was_not(outside, "in it"), ".")


def _was_not(block_ids: Sequence[int], where: str) -> Sequence[str]:
    return ("; ", the_blocks(block_ids), f" {_plural(block_ids, 'was', 'were')} not {where}") if block_ids else ()


@_words(ev.BlocksSkipped)
def _blocks_skipped(run: Sequence[ev.BlocksSkipped], scene: Scene) -> Sentence:
    event = run[0]
    group, null = group_name(scene.fold.groups, event.group), counted(event.num_blocks, "null entry")
    if _keeps_states(event.group, scene):
        why = ": one state stands for all the tokens before it."
    else:
        why = ", outside the window: no token reads there."
    is_start = len(scene.fold.requests[event.request_id].block_tables[event.group]) == event.num_blocks
    verb = "begins" if is_start else "continues"
    return Sentence(the_request(event.request_id), f"'s table of the {group} {verb} with {null}{why}")


def _keeps_states(group: int, scene: Scene) -> bool:
    return scene.fold.groups[group].kind == "state"


@_words(ev.BlockTouched)
def _block_touched(run: Sequence[ev.BlockTouched], scene: Scene) -> Sentence:
    name, group = the_request(run[0].request_id), group_name(scene.fold.groups, run[0].group)
    doubled = [event for event in run if _is_elsewhere(event, scene)]
    if doubled:
        end = f": {_plural(doubled, 'one block is', 'each block is')} in two tables!"
        return Sentence(name, f"'s {group} shares ", _blocks(doubled), " with another group of ", name, end)
    if run[0].is_fork:
        tail = f" {_plural(run, 'is', 'are')} shared with the fork "
        return Sentence(_blocks(run), tail, name, f": {_counts(run)}.")
    found = f" {_plural(run, 'is', 'are')} found by {_plural(run, 'its hash', 'their hashes')} and "
    if all(scene.is_in_tree(event.block_id) for event in run):
        found = f" {_plural(run, 'is', 'are')} found in the prefix tree and "
    if all(event.ref_count == 1 for event in run):
        whose = f"'s {group}." if len(scene.fold.groups) > 1 else "."
        return Sentence(_blocks(run), found, "taken back out of the free queue, for ", name, whose)
    return Sentence(_blocks(run), found, "shared with ", name, f": {_counts(run)}.")


def _counts(run: Sequence[ev.BlockTouched]) -> str:
    return f"ref count {run[0].ref_count}" if len(run) == 1 else "each ref count grows by 1"


def _is_elsewhere(event: ev.BlockTouched, scene: Scene) -> bool:
    """Return True if another group of the same request holds the block too."""
    tables = scene.fold.requests[event.request_id].block_tables
    return any(event.block_id in table for group, table in enumerate(tables) if group != event.group)


def _for_group(event: ev.BlockAllocated, scene: Scene) -> str:
    return f" for the {group_name(scene.fold.groups, event.group)}" if len(scene.fold.groups) > 1 else ""


@_words(ev.BlockPinned)
def _block_pinned(run: Sequence[ev.BlockPinned], scene: Scene) -> Sentence:
    if len(run) == 1:
        return phrase(run[0])
    return Sentence(_blocks(run), " are pinned: each gets a reference that no block table holds.")


@_words(ev.BlockUnpinned)
def _block_unpinned(run: Sequence[ev.BlockUnpinned], scene: Scene) -> Sentence:
    if len(run) == 1:
        return phrase(run[0])
    end = "others keep them in use" if run[0].queue_end is None else "they join the free queue"
    return Sentence(_blocks(run), f" each lose a reference that no block table held; {end}.")


@_words(ev.BlocksLoaded)
def _blocks_loaded(run: Sequence[ev.BlocksLoaded], scene: Scene) -> Sentence:
    ids = [block_id for _, _, block_id, _ in run[0].transfers]
    return Sentence(phrase(run[0]).without_stop(), _who_reads_on(ids, scene), ".")


def _who_reads_on(ids: Sequence[int], scene: Scene) -> str:
    doubled = [i for i in dict.fromkeys(ids) if len(scene.owners.groups_of(i)) > 1]
    if not doubled:
        return ""
    return Sentence("; ", the_blocks(doubled), f" {_plural(doubled, 'is', 'are')} in another group's table too")


@_words(ev.ViolationFound)
def _violation_found(run: Sequence[ev.ViolationFound], scene: Scene) -> Sentence:
    more = f" (and {len(run) - 1} more)." if len(run) > 1 else "."
    return Sentence(phrase(run[0]).without_stop(), more)


@_words(ev.SlotsWritten)
def _slots_written(run: Sequence[ev.SlotsWritten], scene: Scene) -> Sentence:
    event = run[0]
    ids = [block_id for block_id, _, _ in event.runs]
    written = _written(event, scene)
    twins = scene.filling.twins(ids) if scene.num_blocks <= MAX_BLOCKS_WITH_TWINS else {}
    if not twins:
        return written
    others, are = the_blocks(twins[i] for i in ids if i in twins), _plural(list(twins), "is", "are")
    return Sentence(written, " ", _contents(twins, scene), f" {are} already in ", others, ": computed twice.")


def _written(event: ev.SlotsWritten, scene: Scene) -> Sentence:
    """Return where the tokens go; for a single token its slot, right or wrong, to be compared with the table."""
    if [length for _, _, length in event.runs] != [1]:
        return phrase(event)
    [(block_id, offset, _)] = event.runs
    slot = block_id * scene.fold.groups[event.group].block_size + offset
    return Sentence(phrase(event).without_stop(), f", slot {slot}.")


@_words(ev.TokensComputed)
def _tokens_computed(run: Sequence[ev.TokensComputed], scene: Scene) -> Sentence:
    if len(run) == 1:
        return phrase(run[0])
    first = [Sentence(the_request(event.request_id), f"'s first {event.num_computed_tokens}") for event in run]
    return Sentence("Keys and values are computed for ", listing(first), " tokens.")


@_words(ev.BlockCached)
def _block_cached(run: Sequence[ev.BlockCached], scene: Scene) -> Sentence:
    if not run[0].is_full:
        return phrase(run[0])
    contents, them = _contents([event.block_id for event in run], scene), _plural(run, "it", "them")
    full = Sentence(the_request(run[0].request_id), "'s ", _blocks(run), f" {_held_by(run, scene)}")
    if not any(event.mapped for event in run):
        missing = f", but the prefix map does not list {them}: no look-up for "
        return Sentence(full, missing, contents, f" finds {them}.")
    keys = {(event.group, event.block_hash) for event in run}
    if lost := [i for i in sorted(scene.lost) if not keys.isdisjoint(scene.fold.block_keys[i])]:
        overwrites = f" and {_plural(run, 'overwrites', 'overwrite')} the map's entry for "
        replaced = (
            f" {_plural(lost, 'is', 'are')} still in use, but look-ups no longer find {_plural(lost, 'it', 'them')}."
        )
        return Sentence(full, overwrites, contents, ": ", the_blocks(lost), replaced)
    first = [event.mapped[0] for event in run if event.mapped and event.mapped[0] != event.block_id]
    joins = Sentence(full, f" and {_plural(run, 'joins', 'join')} the prefix map")
    if len(first) == len(run):
        return Sentence(joins, ", but a look-up for ", contents, " finds ", the_blocks(first), " first.")
    return Sentence(joins, ": look-ups for ", contents, f" find {them}.")


def _held_by(run: Sequence[ev.BlockCached], scene: Scene) -> str:
    if not _keeps_states(run[0].group, scene):
        return _plural(run, "is full", "are full")
    size = scene.fold.groups[run[0].group].block_size
    if len(run) > 1:
        return "hold its states"
    return f"holds its state after {counted((run[0].index + 1) * size, 'token')}"


@_words(ev.BlockMerged)
def _block_merged(run: Sequence[ev.BlockMerged | ev.BlockFreed], scene: Scene) -> Sentence:
    merged = [event for event in run if isinstance(event, ev.BlockMerged)]
    name, copies, are = the_request(merged[0].request_id), _blocks(merged), _plural(merged, "is", "are")
    into = the_blocks(event.into_block_id for event in merged)
    is_freed = any(isinstance(event, ev.BlockFreed) for event in run)
    end = f" {are} freed." if is_freed else f" {are} no longer needed."
    points = ("to ", into, ", and ", copies) if len(merged) == 1 else ("there, and the copies",)
    return Sentence(
        name, "'s ", copies, f" {are} merged into the equal ", into, ": ", name, "'s table points ", *points, end
    )


@_words(ev.RequestForked)
def _request_forked(run: Sequence[ev.RequestForked], scene: Scene) -> Sentence:
    event = run[0]
    size, group = scene.fold.groups[0].block_size, event.block_ids[0]
    num_filled = event.num_tokens % size
    tail = Sentence(", ", the_block(group[-1]), f" with {num_filled} of {size} slots filled") if num_filled else ""
    return Sentence(
        phrase(event).without_stop(), tail, ". Nothing is copied until one of them writes to a shared block."
    )


@_words(ev.BlockCopied)
def _block_copied(run: Sequence[ev.BlockCopied | ev.BlockFreed], scene: Scene) -> Sentence:
    copied, freed = run[0], [event for event in run if isinstance(event, ev.BlockFreed)]
    if not freed:
        return phrase(copied)
    left = counted(freed[0].ref_count, "table entry")
    points = "points" if freed[0].ref_count == 1 else "point"
    return Sentence(phrase(copied).without_stop(), ". ", left, f" still {points} to ", the_block(copied.block_id), ".")


@_words(ev.BlockFreed)
def _block_freed(freed: Sequence[ev.BlockFreed | ev.BlockMerged], scene: Scene) -> Sentence:
    """Describe the frees of a run; the run may also hold a merge, if a faulty part freed the copy before it."""
    run = [event for event in freed if isinstance(event, ev.BlockFreed)]
    free = [event for event in run if event.queue_end is not None]
    words = Sentence(the_request(run[0].request_id), " frees ", _blocks(run), f" ({word('freed', run[0].reason)})")
    kept = [i for i in (event.block_id for event in run) if scene.is_in_tree(i) and not scene.owners.of(i)]
    if not free:
        return Sentence(words, *(_kept_by_tree(kept) or ["; other table entries still point to it"]), ".")
    which: str = the_block(free[0].block_id) if len(free) == 1 else f"{len(free)} of them"
    if len(free) == len(run):
        which = {1: "it", 2: "both"}.get(len(run), "all")
    full = [event for event in free if scene.fold.block_keys[event.block_id]]
    content = ", content kept" if len(full) == len(free) else ", and the full ones keep their content" if full else ""
    rest = *_kept_by_tree(kept), *_still_named(free, scene)
    return Sentence(words, "; ", which, " ", _queue_ends(free, full), content, *rest, ".")


def _kept_by_tree(block_ids: Sequence[int]) -> Sequence[str]:
    return ("; the prefix tree keeps ", the_blocks(block_ids)) if block_ids else ()


def _still_named(free: Sequence[ev.BlockFreed], scene: Scene) -> Sequence[str]:
    """Describe a table that still names blocks which were freed as duplicates."""
    request_id = free[0].request_id
    tables = scene.fold.requests[request_id].block_tables
    named = [event.block_id for event in free if event.block_id in tables[event.group]]
    return (", yet ", the_request(request_id), "'s table still points there") if named else ()


def _queue_ends(free: Sequence[ev.BlockFreed], full: Sequence[ev.BlockFreed]) -> str:
    """Describe where freed blocks queue; full: those with content."""
    join, at_head = "joins" if len(free) == 1 else "join", [event for event in free if event.queue_end == "head"]
    if len(at_head) == len(free):
        return f"{join} the free queue at the head, to be reused next"
    if not at_head:
        return f"{join} the free queue at the tail"
    if at_head == [event for event in free if event not in full]:
        return f"{join} the free queue, those without content at the head"
    return Sentence(f"{join} the free queue, ", the_blocks(event.block_id for event in at_head), " at the head")
