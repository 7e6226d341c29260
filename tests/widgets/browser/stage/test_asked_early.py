"""Views that are not painted yet are asked nothing: a cell below the window, a tab that opens on a selection."""

from __future__ import annotations

import pytest

from labengine_widgets.selection import selection_of
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

SELECTED = {"kind": "block", "id": 2}
ASK = """([selection, names]) => {
  const { stage } = document.querySelector(".labengine");
  for (const name of names) stage.drawer.show(name);
  for (const { view } of stage.shows) view.element.dispatchEvent(new MouseEvent("mousemove", { bubbles: true }));
  stage.select(selection);
  stage.pointing.point({ ...selection, side: 0, from: null });
  return stage.shows.filter(({ paintedAt }) => !paintedAt).length;
}"""
DRAWN = "() => [...document.querySelector('.labengine').stage.drawer.tabs.keys()]"
MARKED = "() => document.querySelector('.le-tables .le-selected')?.dataset.block ?? null"


def test_a_dashboard_below_the_window_hears_a_selection_before_it_is_painted() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => document.getElementById('cell').style.marginTop = '5000px'")
        view.feed.shown.selection = selection_of(SELECTED)
        view.mount()
        view.answer()
        assert view.page.evaluate("() => document.querySelector('.labengine').stage.selection.id") == 2
        assert view.page.evaluate("() => document.querySelector('.labengine').dataset.used ?? null") is None
        view.page.locator(".labengine").scroll_into_view_if_needed()
        view.until("used", "5")
        assert view.page.evaluate(MARKED) == "2"

    show_dashboard(check, merging_step())


def test_every_view_of_the_drawer_may_be_asked_before_its_first_paint() -> None:
    def check(view: View) -> None:
        names = view.page.evaluate(DRAWN)
        assert view.page.evaluate(ASK, [SELECTED, names]) == len(names), "none of them was painted when it was asked"
        for name in names:
            view.page.evaluate("(name) => document.querySelector('.labengine').stage.drawer.show(name)", name)
            view.painted()

    show_dashboard(check, merging_step())
