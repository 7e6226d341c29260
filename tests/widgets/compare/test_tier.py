"""The external tier in the compare view: its contents on each side, transfers under way, and pins."""

from __future__ import annotations

import pytest

from labengine.scenarios import bug
from widgets.compare.compare_page import ComparePage, show_comparison

pytestmark = pytest.mark.browser


def entries(page: ComparePage, side: int) -> list[str]:
    """The contents on the shelf of one side, each with its sign."""
    shown = page.page.locator(f".le-column[data-side='{side}'] .le-tier-entry")
    return shown.all_text_contents()


def test_a_load_and_the_eviction_under_it_are_drawn_on_both_sides() -> None:
    def check(page: ComparePage) -> None:
        page.next_stop()
        assert entries(page, 0) == entries(page, 1) == ["r⇣", "s⇣"]
        assert "⇣ loading forAr → #1s → #2" in page.texts(".le-column[data-side='0'] .le-tier-line")
        held = page.page.locator(".le-tier-entry").first
        assert held.get_attribute("aria-label") == "content r, nowhere else, being loaded now"
        page.next_stop()
        assert entries(page, 0) == entries(page, 1) == ["p↑", "q↑"]
        page.next_stop()
        assert entries(page, 0) == ["p●", "q●"]
        page.picture("27444-loaded")
        page.picture("27444-loaded", "dark")

    show_comparison(check, bug("sglang-27444").compare())


def test_pins_are_counted_and_said() -> None:
    def check(page: ComparePage) -> None:
        page.next_stop()
        pinned = page.page.locator(".le-column[data-side='1'] .le-tier-pinned")
        labels = [one.get_attribute("aria-label") or "" for one in pinned.all()]
        assert len(labels) == 3 and "pinned by 2 transfers" in labels[0] and "pin ×2" in entries(page, 1)[0]

    show_comparison(check, bug("lmcache-5095").compare())


def test_without_a_tier_it_takes_no_room() -> None:
    def check(page: ComparePage) -> None:
        assert not page.page.locator(".le-tier-panel").first.is_visible()
        assert not page.page.get_by_text("external tier", exact=True).first.is_visible()

    show_comparison(check, bug("nano-vllm-71").compare())


@pytest.mark.parametrize("width", [620, 1220])
def test_it_takes_its_room_from_the_page_and_not_from_the_tables(width: int) -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        tables = page.page.locator(".le-column[data-side='0'] .le-tables")
        assert tables.evaluate("(one) => one.scrollHeight - one.clientHeight") < 40, "nearly all rows are in sight"

    show_comparison(check, bug("lmcache-5095").compare(), width=width)
