"""A panel of the dashboard that leaves something out says how much, and its sign scrolls on."""

from __future__ import annotations

import pytest

from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

HIDDEN = """() => {
  const view = document.querySelector(".le-queue-view"), { bottom } = view.getBoundingClientRect();
  const seats = [...view.querySelectorAll(".le-queue-seat")];
  return seats.filter((seat) => seat.getBoundingClientRect().bottom > bottom + 3).length;
}"""


def test_a_queue_that_does_not_fit_says_how_many_blocks_are_left_out() -> None:
    def check(view: View) -> None:
        view.press("Home")
        view.painted()
        hidden = view.page.evaluate(HIDDEN)
        sign = view.page.locator(".le-queue-panel .le-beyond")
        assert hidden > 1 and sign.text_content() == f"+{hidden} blocks ↓"
        sign.click()
        view.painted()
        assert view.page.evaluate(HIDDEN) < hidden
        assert view.page.locator(".le-tables-panel .le-beyond").is_hidden(), "nothing is left out there"

    show_dashboard(check, merging_step())
