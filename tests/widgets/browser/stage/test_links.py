"""A block that is pointed at: a line from every table entry that holds it, between the tiles of the pool."""

from __future__ import annotations

from typing import Any

import pytest

from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

TILE = """(id) => {
  const { stage } = document.querySelector(".labengine");
  return stage.shows.find(({ view }) => view.tileOf).view.tileOf(id);
}"""
COVERED = """(own) => {
  const { stage } = document.querySelector(".labengine"), pool = stage.shows.find(({ view }) => view.tileOf).view;
  const origin = stage.root.getBoundingClientRect(), covered = new Set();
  const tiles = Array.from({ length: pool.numBlocks }, (_, id) => pool.tileOf(id));
  for (const line of document.querySelectorAll(".le-link"))
    for (let at = 0; at < line.getTotalLength(); at += 2) {
      const point = line.getPointAtLength(at), x = point.x + origin.left, y = point.y + origin.top;
      tiles.forEach(({ left, right, top, bottom }, id) => {
        if (id !== own && x > left && x < right && y > top && y < bottom) covered.add(id);
      });
    }
  return [...covered];
}"""


def point_at(view: View, block: int) -> dict[str, Any]:
    tile: dict[str, Any] = view.page.evaluate(TILE, block)
    view.page.mouse.move((tile["left"] + tile["right"]) / 2, (tile["top"] + tile["bottom"]) / 2)
    return tile


def test_a_line_leads_from_every_holder_past_the_tiles() -> None:
    def check(view: View) -> None:
        for block, holders in ((0, 2), (2, 2), (3, 1), (7, 1), (8, 0)):
            point_at(view, block)
            assert view.page.locator(".le-link").count() == holders, block
            assert view.page.evaluate(COVERED, block) == [], f"a line to #{block} goes over a tile"
        view.page.locator("[data-anchor='row:1:0:0']").hover()
        assert view.page.locator(".le-link").count() == 2, "and so it is when an entry is pointed at"
        view.page.mouse.move(5, 5)
        assert view.page.locator(".le-link").count() == 0

    show_dashboard(check, merging_step())


def test_a_holder_that_is_scrolled_away_has_its_line() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => document.querySelector('.le-tables').style.height = '60px'")
        tile = point_at(view, 1)
        assert view.page.locator(".le-link").count() == 2
        ends = view.page.eval_on_selector_all(".le-link", "(all) => all.map((one) => one.getBBox().y)")
        assert all(end < tile["bottom"] for end in ends)

    show_dashboard(check, merging_step())


def test_a_name_in_the_sentence_points_at_what_it_names() -> None:
    def check(view: View) -> None:
        names = view.page.locator(".le-sentence .le-mention")
        view.move_to(21)
        assert "".join(view.page.locator(".le-sentence").all_inner_texts()) == view.data("sentence")
        assert names.all_inner_texts() == ["A", "#0", "p"]
        view.page.locator(".le-sentence .le-mention[data-block]").last.hover()
        assert view.page.locator(".le-link").count() == 1 and view.text(".le-tip").startswith("#0 · ref count 1")
        names.first.click()
        assert view.page.locator(".le-tables [data-request='0'].le-selected").count() > 0

    show_dashboard(check, merging_step())


def test_a_tooltip_goes_with_any_key_and_with_a_change_of_the_layout() -> None:
    def check(view: View) -> None:
        tip = view.page.locator(".le-tip")
        for key in ("ArrowLeft", "x", "f", "f"):
            view.page.mouse.move(5, 5)
            view.painted()
            point_at(view, 1)
            assert tip.is_visible(), key
            view.press(key)
            assert tip.is_hidden(), key
        view.painted()
        view.page.mouse.move(5, 5)
        point_at(view, 1)
        view.page.evaluate("() => (document.getElementById('cell').style.width = '700px')")
        view.page.wait_for_selector(".le-tip", state="hidden")

    show_dashboard(check, merging_step())


RINGS = """async () => {
  const { Ink } = (await import("/widget.js")).internals;
  const { stage } = document.querySelector(".labengine"), { view } = stage.shows.find(({ view }) => view.tileOf);
  const { theme } = stage, drawn = (pointed, selected, focus) => {
    const strokes = [], context = new Proxy({}, {
      get: (kept, name) => kept[name] ?? (() => name === "stroke" && strokes.push([kept.strokeStyle, kept.lineWidth])),
      set: (kept, name, value) => Reflect.set(kept, name, value),
    });
    view.outlines.focus = new Set(focus ? [1] : []);
    const blocks = (is) => new Set(is ? [1] : []);
    const look = { hasMark: true, selected: blocks(selected), pointed: blocks(pointed) };
    view.outlines.paintRings(new Ink(context, theme), view.rectOf(1), 1, look);
    return strokes;
  };
  const rings = [drawn(true), drawn(false, true), drawn(false, false, true), drawn(true, true)];
  return [theme.accent, theme.ink, ...rings];
}"""
OUTLINE = (
    "(one) => { const { outlineColor, outlineWidth } = getComputedStyle(one); return [outlineColor, outlineWidth]; }"
)


def test_pointing_selection_and_the_current_event_look_different() -> None:
    def check(view: View) -> None:
        view.page.locator("[data-anchor='row:0:0:2']").click()
        view.page.locator("[data-anchor='row:0:0:1']").hover()
        selected, pointed = (view.page.locator(f"[data-anchor='row:0:0:{i}']").evaluate(OUTLINE) for i in (2, 1))
        assert selected[0] != pointed[0] and float(pointed[1][:-2]) < float(selected[1][:-2])
        accent, ink, pointed, selected, current, both = view.page.evaluate(RINGS)
        assert all(colour not in (accent, ink) for colour, _ in pointed)
        assert [colour for colour, _ in selected + current] == [accent, accent] and selected[0][1] > current[0][1] + 1
        assert both[0] == selected[0] and len(both) == 2, "the selection stays what it is while it is pointed at"

    show_dashboard(check, merging_step())
