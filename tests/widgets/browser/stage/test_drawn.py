"""What the dashboard draws in a page: its colours, theme and text, and that nothing moves from its place."""

from __future__ import annotations

from typing import Any

import pytest

from waiting import wait_until
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step, overwriting_step

pytestmark = pytest.mark.browser

OVERFLOW = """
() => {
  const { scrollWidth, clientWidth } = document.querySelector(".labengine");
  return scrollWidth - clientWidth;
}
"""
VERMILION = [0xD5, 0x5E, 0x00]


def test_a_saved_state_is_drawn_with_no_kernel_to_ask() -> None:
    def check(view: View) -> None:
        assert view.data("sentence").startswith("A and B are in the waiting queue")
        assert view.text(".le-title") == "fake · 12 blocks of 4"
        assert view.page.locator(".le-tables-row").count() == 2
        assert [message["type"] for message in view.page.evaluate("() => window.sent")] == ["resync"]

    show_dashboard(check)


def test_vermilion_is_for_lost_blocks_alone() -> None:
    def merged(view: View) -> None:
        assert (view.data("lost"), view.pixels(VERMILION)) == ("0", 0)

    def overwritten(view: View) -> None:
        assert view.data("lost") == "3"
        assert view.pixels(VERMILION) > 500
        assert view.page.locator(".le-is-lost").text_content() == "3 lost"
        assert view.page.locator(".le-tables-chip .le-is-lost-bead").count() == 3

    show_dashboard(merged, merging_step())
    show_dashboard(overwritten, overwriting_step())


def test_whatever_a_model_or_a_person_writes_stays_text() -> None:
    evil = "<img src=x onerror='window.pwned=1'>"

    def check(view: View) -> None:
        view.answer()
        view.emit(
            {"type": "status", "status": {"title": evil, "running": False, "phase": None, "listener_failures": [evil]}}
        )
        view.press("Home", *["ArrowRight"] * 14)
        assert evil in view.data("sentence") or "<img" in view.data("sentence")
        view.page.locator(".le-tables-fold").first.click()
        view.page.locator(".le-tables-card").first.hover()
        assert (
            "<img" in view.text(".le-tip")
            and "<img" in view.text(".le-tables-slots")
            and evil in view.text(".le-message")
        )
        assert view.page.locator("img").count() == 0
        assert view.page.evaluate("() => window.pwned") is None

    show_dashboard(check, merging_step(), dict.fromkeys(range(200), evil))


def test_the_frame_keeps_its_size_and_the_cells_their_places() -> None:
    def check(view: View) -> None:
        def places() -> list[Any]:
            boxes = [view.page.locator(selector).bounding_box() for selector in (".labengine", ".le-pool")]
            return [*boxes, view.page.evaluate("() => document.documentElement.scrollHeight")]

        before = places()
        view.press("Home")
        for _ in range(19):
            view.press("ArrowRight")
            assert places() == before
        for width in (700, 1300):
            view.page.evaluate("(width) => (document.getElementById('cell').style.width = width + 'px')", width)
            view.painted()
            assert view.page.locator(".labengine").bounding_box()["height"] == 670
            assert view.page.evaluate(OVERFLOW) == 0
            for button in ("Add", "Step", "Phase", "Run", "Reset"):
                box = view.page.get_by_role("button", name=button, exact=True).bounding_box()
                assert box["x"] + box["width"] <= 8 + width

    show_dashboard(check, merging_step())


def test_the_canvas_follows_the_theme() -> None:
    def check(view: View) -> None:
        dark = "document.documentElement.style.setProperty('--jp-layout-color1', '#111111');"
        dark += "document.documentElement.style.setProperty('--jp-ui-font-color1', '#ffffff');"
        dark += "document.body.dataset.jpThemeLight = 'false';"
        number = view.pixels([0xFF, 0xFF, 0xFF])
        view.page.evaluate(f"() => {{ {dark} }}")
        wait_until(lambda: view.pixels([0x1D, 0x1D, 0x1D]) > 1000, "dark cells", between=view.painted)
        assert view.pixels([0xF4, 0xF4, 0xF4]) < 1000
        assert view.pixels([0xFF, 0xFF, 0xFF]) != number

    show_dashboard(check, merging_step())


def test_nothing_moves_when_a_request_speaks_and_a_block_is_lost() -> None:
    def check(view: View) -> None:
        def place(of: str) -> tuple[float, float, float]:
            box = view.page.locator(of).last.bounding_box()
            return box["x"], box["y"], box["height"]

        view.press("Home")
        places = set()
        for _ in range(19):
            places.add(tuple(map(place, (".le-used b", ".le-fact", ".le-tables-row"))))
            view.press("ArrowRight")
        assert len(places) == 1

    show_dashboard(check, overwriting_step())
