"""The prefix tree as a reader sees it: rows below their parents, the order of use, locks, and what is evicted next."""

from __future__ import annotations

from typing import Any

import pytest

from labengine import events as ev
from labengine.record.fold import Fold
from widgets.browser.views.mounted_view import MountedView, show_view
from widgets.browser.views.view_recordings import moment_after, preempting, tree

pytestmark = pytest.mark.browser

ROWS = """() => {
  const { laid } = mounted.view;
  return laid.ids.map((_, row) => {
    const { id, node, age, isNext, isGone } = laid.row(row);
    return { id, parent: node.parent, above: laid.ids[laid.parents[row]] ?? 0, age, isNext, isGone };
  });
}"""
STEPPED = """([moment, since]) => {
  const { side, view } = mounted, changes = side.move(moment);
  view.paint(side.scene, changes, { moment, since });
}"""
POINTED = """(y) => mounted.view.at({ target: mounted.view.canvas, offsetX: 200, offsetY: y })"""


def rows_at(mounted: MountedView, moment: int) -> list[dict[str, Any]]:
    mounted.at(moment)
    found: list[dict[str, Any]] = mounted.page.evaluate(ROWS)
    return found


def test_every_node_is_below_its_parent_and_in_the_order_of_use() -> None:
    events, fold = tree(), Fold()

    def check(mounted: MountedView) -> None:
        for moment, event in enumerate(events, 1):
            fold.apply(event)
            if not isinstance(event, ev.StepEnded | ev.NodeSplit | ev.NodeEvicted | ev.NodesTouched):
                continue
            rows = rows_at(mounted, moment)
            assert all(row["above"] == row["parent"] for row in rows)
            by_age = [row["id"] for row in sorted(rows, key=lambda row: row["age"])]
            assert by_age == [state.node_id for state in fold.tree.states()]
            next_leaf = [row["id"] for row in rows if row["isNext"]]
            expected = fold.tree.next_leaf()
            assert next_leaf == ([] if expected is None else [expected])

    show_view(check, "tree", events)


def test_a_split_node_keeps_its_place_and_an_evicted_one_is_seen_to_go() -> None:
    events = tree()
    split, evicted = moment_after(events, ev.NodeSplit, 2), moment_after(events, ev.NodeEvicted)
    gone = events[evicted - 1]
    assert isinstance(gone, ev.NodeEvicted)

    def check(mounted: MountedView) -> None:
        before, after = (rows_at(mounted, moment) for moment in (split - 1, split))
        kept = [row["id"] for row in before]
        assert [row["id"] for row in after if row["id"] in kept] == kept and len(after) == len(kept) + 1
        mounted.at(evicted - 1)
        mounted.page.evaluate(STEPPED, [evicted, evicted - 1])
        assert [row["id"] for row in mounted.page.evaluate(ROWS) if row["isGone"]] == [gone.node_id]
        mounted.page.evaluate(STEPPED, [evicted + 3, evicted + 3])
        assert gone.node_id not in [row["id"] for row in mounted.page.evaluate(ROWS)]

    show_view(check, "tree", events)


def test_it_counts_says_what_is_next_and_finds_the_node_under_the_mouse() -> None:
    events = tree()

    def check(mounted: MountedView) -> None:
        rows = rows_at(mounted, mounted.end)
        words = mounted.text(".le-tree-summary")
        next_leaf = next(row["id"] for row in rows if row["isNext"])
        assert words.startswith(f"{len(rows)} nodes · ") and f"next: node {next_leaf} (" in words
        assert mounted.page.evaluate(POINTED, 34) == {"kind": "node", "id": rows[0]["id"]}
        assert mounted.page.evaluate(POINTED, 5) is None, "the scales"
        mounted.at(2)
        assert mounted.text(".le-tree-summary") == "The prefix tree is empty."

    show_view(check, "tree", events)


def test_an_edition_without_one_says_so() -> None:
    def check(mounted: MountedView) -> None:
        assert mounted.text(".le-tree-summary") == "This edition has no prefix tree."

    show_view(check, "tree", preempting())


def test_blocks_that_no_lock_protects_are_drawn_as_kept() -> None:
    events = tree()
    unlocked = moment_after(events, ev.RequestFinished, 2)
    kept = "() => [...Array(18).keys()].filter((id) => mounted.side.scene.block(id).isKept)"

    def check(mounted: MountedView) -> None:
        fold = Fold()
        fold.apply_all(events[:unlocked])
        mounted.at(unlocked)
        free = {block_id for block_id, count in enumerate(fold.ref_counts) if not count}
        assert set(mounted.page.evaluate(kept)) == free | fold.tree.evictable() and fold.tree.evictable()

    show_view(check, "pool", events)


def test_the_queue_follows_an_eviction() -> None:
    events = tree()
    seats = (
        "() => [...document.querySelectorAll('.le-queue-seat:has(.le-bead)')].map((one) => Number(one.dataset.block))"
    )
    queue = "() => [...mounted.side.scene.queue.first()]"

    def check(mounted: MountedView) -> None:
        for moment, (seen, expected) in mounted.walk(range(1, mounted.end + 1), seats, queue):
            assert seen == expected, moment
        mounted.at(moment_after(events, ev.NodeEvicted))
        assert any("evicted" in why for why in mounted.texts(".le-queue-why"))

    show_view(check, "queue", events)
