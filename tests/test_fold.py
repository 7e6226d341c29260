"""The fold on events that cannot be: it never raises, counts them, and its changes have all that it has changed."""

from __future__ import annotations

from random import Random

import pytest

from damaged_streams import damaged
from driving import recorded
from grounds import ALL_GROUNDS, Ground
from labengine import events as ev
from labengine.record.fold import _APPLY, Fold
from labengine.record.fold_state import Changes
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot, map_key

START = ev.EngineStarted(num_blocks=4, groups=(("full", 2, None),), edition="labengine")
BEGUN = [START, ev.RequestAdded(0, (1, 2, 3), 4), ev.BlockAllocated(0, 0, 0, 0), ev.BlockAllocated(1, 0, 0, 1)]


@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_changes_have_whatever_an_event_has_changed(ground: Ground) -> None:
    hooks = Hooks(strict=True)
    sound = recorded(hooks)
    for _ in ground.drive(1, hooks).operations(Random(1)):
        if len(sound) > 500:
            break
    fold = Fold()
    before = fold.snapshot()
    for event in damaged(sound, Random(1)):
        fold.apply(event)
        after = fold.snapshot()
        is_restart = isinstance(event, ev.EngineStarted)
        assert is_restart or not unsaid(before, after, fold.take_changes()), event
        before = after
    assert fold.num_impossible


def unsaid(before: Snapshot, after: Snapshot, changes: Changes) -> list[str]:
    """Name what differs between two states and is not among the changes."""
    keys = {map_key(*key) for key in changes.keys}
    blocks = [
        i for i, (a, b) in enumerate(zip(before.blocks, after.blocks, strict=True)) if a != b or _pins(i, before, after)
    ]
    requests = {
        i for i in before.requests.keys() | after.requests.keys() if before.requests.get(i) != after.requests.get(i)
    }
    mapped = {
        k
        for k in before.prefix_map.keys() | after.prefix_map.keys()
        if before.prefix_map.get(k) != after.prefix_map.get(k)
    }
    return [
        *(f"block {i}" for i in blocks if i not in changes.blocks),
        *(f"request {i}" for i in requests - changes.requests),
        *(f"key {key}" for key in mapped - keys),
    ]


def _pins(block_id: int, before: Snapshot, after: Snapshot) -> bool:
    return before.pins.get(block_id) != after.pins.get(block_id)


NOWHERE = [
    ev.PrefixHit(7, 2, ((0,),)),
    ev.RequestForked(7, 0, 2, ((0,),)),
    ev.BeamReplaced(7, (1, 2), 0),
    ev.ExternalHit(7, 2),
    ev.RequestScheduled(7, 0, 1, True, "running"),
    ev.RequestPreempted(7),
    ev.RequestFinished(7, "stop"),
    ev.RequestReleased(7),
    ev.TokensComputed(7, 1),
    ev.TokenSampled(7, 1, 3),
    ev.TokensDrafted(7, (1, 2)),
    ev.DraftsJudged(7, 1, 1),
    *(ev.BlockEvicted(i) for i in (-1, 4)),
    *(ev.BlockAllocated(i, 0, 0, 2) for i in (-1, 4)),
    *(ev.BlocksSkipped(0, group, 1) for group in (-1, 1)),
    *(ev.BlockTouched(i, 0, 0, 2, 1) for i in (-1, 4)),
    *(ev.BlockCached(i, 0, 0, 0, b"h", (0,)) for i in (-1, 4)),
    *(ev.BlockCached(0, 0, group, 0, b"h", (0,)) for group in (-1, 1)),
    *(ev.BlockMerged(0, i, 0, 0, 0, 2) for i in (-1, 4)),
    *(ev.BlockMerged(0, 1, 0, 0, index, 2) for index in (-1, 2)),
    *(ev.BlockFreed(i, 0, 0, 0, 0, "tail", "finished") for i in (-1, 4)),
    *(ev.FreeDeferred(0, group, ()) for group in (-1, 1)),
    *(ev.BlockPinned(i, 1) for i in (-1, 4)),
    *(ev.BlockUnpinned(i, 0, "tail") for i in (-1, 4)),
    *(ev.BlockCopied(0, i, 0, 0, 0, is_pinned) for i in (-1, 4) for is_pinned in (True, False)),
    *(ev.BlockMoved(0, 0, 0, index, 3) for index in (-1, 9)),
    *(ev.HashesMoved(0, i) for i in (-1, 4)),
    *(ev.StateAdvanced(0, 0, i, 0, 4) for i in (-1, 4)),
    *(ev.StateCopied(0, i, 0, 0, 4) for i in (-1, 4)),
    *(ev.BlocksLoaded(0, ((group, 0, 0, b"h"),)) for group in (-1, 1)),
    ev.NodeInserted(1, 9, 0, 0, 0, (0,)),
    ev.NodeSplit(9, 2, 1),
    ev.NodesTouched((9,)),
    ev.NodeLocked(9, 0),
    ev.NodeUnlocked(9, 0),
    *(ev.NodeEvicted(9, (0,), "tail", "reused", num_kept) for num_kept in (0, 1)),
    *(ev.RequestReceived(0, ((group, 0, 0, b"h"),), "left", 0, 4) for group in (-1, 1)),
]


@pytest.mark.parametrize("event", NOWHERE, ids=str)
def test_an_event_that_names_what_is_not_there_changes_nothing(event: ev.Event) -> None:
    fold = Fold()
    for begun in BEGUN:
        fold.apply(begun)
    before, num_impossible = fold.snapshot(), fold.num_impossible
    fold.apply(event)
    assert fold.snapshot() == before and fold.num_impossible > num_impossible


def test_every_kind_that_changes_the_state_is_among_them() -> None:
    made_from_nothing = {ev.EngineStarted, ev.StepStarted, ev.RequestAdded, ev.RequestForgotten}
    assert {type(event) for event in NOWHERE} | made_from_nothing == set(_APPLY)
