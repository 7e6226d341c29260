"""What the fields of events say they are: which kinds, blocks and table entries follow from it."""

from __future__ import annotations

from typing import get_args

import pytest

from labengine import events as ev

MERGED = ev.BlockMerged(3, 4, 0, 1, 2, ref_count=2)


def test_kinds_that_replace_an_entry_have_one_and_a_block_that_gains_it() -> None:
    replacing = [k for k in ev.EVENT_KINDS if ev.paths(k, "entry") and len(ev.paths(k, *ev.BLOCK_ROLES)) == 2]
    assert replacing == [*get_args(ev.EntryReplaced)]


@pytest.mark.parametrize(
    ("event", "blocks", "counted", "entry"),
    [
        (MERGED, {3, 4}, (4,), (0, 1, 2)),
        (ev.BlockFreed(3, 0, 1, 2, 0, "tail", "merged"), {3}, (3,), (0, 1, 2)),
        (ev.BlockCached(3, 0, 1, 2, b"a", (5, 3)), {3, 5}, (), None),
        (ev.SlotsWritten(0, 1, 0, ((7, 0, 2), (8, 0, 1))), {7, 8}, (), None),
        (ev.BlocksLoaded(0, ((0, 1, 2, b""), (1, 1, 3, b""))), {2, 3}, (), None),
        (ev.NodeInserted(2, 1, 0, 0, 3, (4, 5)), {4, 5}, (4, 5), None),
        (ev.PrefixHit(0, 4, ((1, 2), (-1, 3))), set(), (), None),
        (ev.StepStarted(1), set(), (), None),
        (ev.NodeEvicted(1, (3, 4), "tail"), {3, 4}, (3, 4), None),
    ],
)
def test_what_an_event_is_about(
    event: ev.Event, blocks: set[int], counted: tuple[int, ...], entry: tuple[int, int, int] | None
) -> None:
    assert (ev.blocks_of(event), ev.counted_blocks(event), ev.changed_entry(event)) == (blocks, counted, entry)


def test_every_block_id_is_renumbered_and_nothing_else() -> None:
    violation = ev.ViolationFound("said", "", (1,), (2,), 3, 4, misnamed=((5, 1, b"a", b"b"),))
    assert ev.renumbered(MERGED, 1) == ev.BlockMerged(4, 5, 0, 1, 2, ref_count=2)
    assert ev.renumbered(ev.PrefixHit(0, 4, ((1, 2), (-1, 3))), 1).block_ids == ((2, 3), (0, 4))  # type: ignore[attr-defined]
    assert ev.renumbered(violation, 1) == ev.ViolationFound(
        "said", "", (1,), (3,), 3, 4, misnamed=((6, 1, b"a", b"b"),)
    )
