"""The selection is marked in every view, with what belongs to it, and scrolled into sight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from labengine import events as ev
from widgets.browser.views.mounted_view import MountedView, show_view
from widgets.browser.views.time_page import Viewed, show_views
from widgets.browser.views.view_recordings import crowd, hybrid
from widgets.story_219 import begin, merging_step, overwriting_step

pytestmark = pytest.mark.browser

MERGED = [*begin(), *merging_step()]
OVERWRITTEN = [*begin(), *overwriting_step()]
MARKED = """
(className) => [...document.querySelectorAll(`#root .${className}`)].flatMap(({ dataset }) =>
  ["block", "request", "hash", "event"].filter((kind) => dataset[kind] !== undefined)
    .map((kind) => `${kind} ${dataset[kind]}`))
"""
SEEN = """
(selector) => {
  const frame = document.querySelector("#root").firstElementChild.getBoundingClientRect();
  const { top, bottom, height } = document.querySelector(selector)?.getBoundingClientRect() ?? { height: 0 };
  return height > 0 && top >= frame.top && bottom <= frame.bottom;
}
"""


def number(events: Sequence[ev.Event], kind: type[ev.Event], which: int = 0) -> int:
    return [i for i, event in enumerate(events) if isinstance(event, kind)][which]


def key(events: Sequence[ev.Event], block: int) -> str:
    """The first hash that a block is known by."""
    cached = next(event for event in events if isinstance(event, ev.BlockCached) and event.block_id == block)
    return f"{cached.group}:{cached.block_hash.hex()}"


def select(mounted: MountedView, kind: str | None, id: int | str | None = None) -> None:
    """As Python does it, or another view."""
    mounted.page.evaluate("(selection) => window.mounted.stage.select(selection)", kind and {"kind": kind, "id": id})


def marked(mounted: MountedView, name: str = "le-related") -> set[str]:
    return set(mounted.page.evaluate(MARKED, name))


@pytest.mark.parametrize("view", ["tables", "step", "map"])
def test_a_hash_is_marked_with_the_blocks_that_hold_its_content(view: str) -> None:
    def check(mounted: MountedView) -> None:
        mounted.at(number(OVERWRITTEN, ev.StepEnded))
        select(mounted, "hash", key(OVERWRITTEN, 4))
        assert {"block 0", "block 4"} <= marked(mounted), "the one that is found and the one that is lost"
        assert not marked(mounted) & {"block 1", "block 5"}
        assert (marked(mounted, "le-selected") == {f"hash {key(OVERWRITTEN, 4)}"}) == (view == "map")
        mounted.picture("hash")
        mounted.picture("hash", "dark")
        select(mounted, None)
        assert not marked(mounted) and not marked(mounted, "le-selected")

    show_view(check, view, OVERWRITTEN)


@pytest.mark.parametrize("view", ["tables", "step", "map", "queue"])
def test_an_event_is_marked_with_what_it_names(view: str) -> None:
    merged = number(MERGED, ev.BlockMerged)  # block 4 of request 1 into block 0

    def check(mounted: MountedView) -> None:
        mounted.at(merged + 1)
        select(mounted, "event", merged)
        wanted = {"map": {"block 0"}, "queue": {"block 4", "block 0"}}.get(view, {"block 0", "request 1"})
        assert wanted <= marked(mounted)
        assert "block 1" not in marked(mounted) and "request 0" not in marked(mounted)
        mounted.picture("event")

    show_view(check, view, MERGED)


def test_an_event_that_names_a_hash_marks_it() -> None:
    cached = number(MERGED, ev.BlockCached)

    def check(mounted: MountedView) -> None:
        select(mounted, "event", cached)
        assert f"hash {key(MERGED, 0)}" in marked(mounted)

    show_view(check, "map", MERGED)


def test_marks_stay_with_their_things_when_rows_are_painted_anew() -> None:
    def check(mounted: MountedView) -> None:
        moments = range(number(MERGED, ev.BlockMerged), len(MERGED) + 1)
        mounted.at(moments[0])
        select(mounted, "hash", key(MERGED, 0))
        seen = []
        for moment in moments:
            mounted.at(moment)
            seen.append(marked(mounted))
        assert {"block 0", "block 4"} <= seen[0] and "block 4" not in seen[-1] and "block 0" in seen[-1]

    show_view(check, "tables", MERGED)


@pytest.mark.parametrize(("kind", "of"), [("hash", "block"), ("event", "merge"), ("request", "table")])
def test_the_pool_rings_the_same_blocks(kind: str, of: str) -> None:
    ringed = "() => [...window.mounted.view.outlines.ids].sort((a, b) => a - b)"

    def check(mounted: MountedView) -> None:
        merged = number(MERGED, ev.BlockMerged)
        mounted.at(merged)
        selected = {"block": key(MERGED, 0), "merge": merged, "table": 1}[of]
        select(mounted, kind, selected)
        assert mounted.page.evaluate(ringed) == {"block": [0, 4], "merge": [0, 4], "table": [4, 5, 6, 7]}[of]

    show_view(check, "pool", MERGED)


def test_the_bands_tag_what_an_event_names() -> None:
    tagged = """([id]) => {
      const { view } = stage.shows[0], tagged = [], tag = view.bands.tag.bind(view.bands);
      view.bands.tag = (context, block, theme) => (tagged.push(block), tag(context, block, theme));
      stage.select({ kind: "event", id });
      return tagged;
    }"""

    def check(view: Viewed) -> None:
        assert sorted(view.js(tagged, number(MERGED, ev.BlockMerged))) == [0, 4]

    show_views(check, MERGED, "timeline")


# -- in sight ----------------------------------------------------------------------------------------------------------


def crowded(num_requests: int) -> list[ev.Event]:
    return crowd(num_requests, num_blocks=16 * num_requests, num_steps=2, tokens=60)


def last_block(events: Sequence[ev.Event], request: int) -> int:
    """The last block that a request is given."""
    taken = [event for event in events if isinstance(event, ev.BlockAllocated) and event.request_id == request]
    return taken[-1].block_id


@pytest.mark.parametrize("kind", ["request", "block"])
def test_tables_scroll_the_marked_row_into_view(kind: str) -> None:
    events, request = crowded(40), 38

    def check(mounted: MountedView) -> None:
        id = request if kind == "request" else last_block(events, request)
        selector = f".le-selected[data-{kind}='{id}']"
        mounted.page.evaluate("() => document.body.style.height = '3000px'")
        select(mounted, kind, id)
        mounted.page.wait_for_function(SEEN, arg=selector)
        mounted.picture(f"in-sight-{kind}")
        assert mounted.page.evaluate("() => scrollY") == 0, "the page stays"
        select(mounted, kind, 0 if kind == "request" else last_block(events, 0))
        mounted.page.wait_for_function(SEEN, arg=".le-selected")

    show_view(check, "tables", events)


def test_of_what_an_event_names_the_block_is_scrolled_into_view() -> None:
    events = crowded(12)
    taken = [i for i, event in enumerate(events) if isinstance(event, ev.BlockAllocated) and event.request_id == 9][-1]

    def check(mounted: MountedView) -> None:
        block = events[taken].block_id  # type: ignore[attr-defined]
        select(mounted, "request", 9)
        select(mounted, "event", taken)
        mounted.page.wait_for_function(SEEN, arg=f".le-related[data-block='{block}']")

    show_view(check, "tables", events)


def test_the_map_scrolls_the_marked_bead_into_view() -> None:
    events = crowded(40)
    cached = [event for event in events if isinstance(event, ev.BlockCached)][-1]

    def check(mounted: MountedView) -> None:
        select(mounted, "block", cached.block_id)
        mounted.page.wait_for_function(SEEN, arg=f".le-selected[data-block='{cached.block_id}']")

    show_view(check, "map", events)


def test_nothing_moves_in_the_view_where_one_chooses() -> None:
    events = crowded(12)

    def check(mounted: MountedView) -> None:
        frame = mounted.page.locator(".le-tables")
        frame.evaluate("(it) => it.addEventListener('click', () => mounted.stage.select({ kind: 'request', id: 11 }))")
        frame.click(position={"x": 5, "y": 60})
        assert marked(mounted, "le-selected") and frame.evaluate("(it) => it.scrollTop") == 0

    show_view(check, "tables", events)


def test_what_was_selected_before_the_log_is_opened_is_visible_in_it() -> None:
    events = hybrid()
    seen = """() => {
      const list = document.querySelector(".le-log-list").getBoundingClientRect();
      const line = document.querySelector(".le-log-line[data-event='3']");
      const rect = line?.getBoundingClientRect();
      return Boolean(rect) && rect.top >= list.top && rect.bottom <= list.bottom;
    }"""

    def check(view: Viewed) -> None:
        view.js("() => { stage.shows[0].view.element.hidden = true; stage.shows[0].isShown = () => false; }")
        view.js("() => stage.select({ kind: 'event', id: 3 })")
        view.js(
            "() => { const [it] = stage.shows; it.view.element.hidden = false; it.isShown = () => 1; stage.repaint(); }"
        )
        assert view.js(seen)

    show_views(check, events, "log")
