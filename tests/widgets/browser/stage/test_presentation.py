"""Presentation mode, in Chromium: tables and pool fill the screen, and one key takes the next step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from browser.bare_pages import BROWSER, BarePages
from labengine.course.predict_exercise import PredictExercise
from labengine.lab import Lab
from widgets.browser.stage.dashboard_page import _ticked
from widgets.browser.stage.test_asked import ExercisePage

pytestmark = pytest.mark.browser

SEEN = """() => {
  const root = document.querySelector(".labengine"), { width, height } = root.getBoundingClientRect();
  const panels = [...root.querySelectorAll(".le-panel")].filter((one) => one.getClientRects().length);
  return {
    panels: panels.map((one) => one.getAttribute("aria-label")),
    fills: width === innerWidth && height === innerHeight,
    isCut: root.scrollWidth > root.clientWidth || root.scrollHeight > root.clientHeight,
  };
}"""
TILE = """(block) => {
  const { shows } = document.querySelector(".labengine").stage;
  const { left, right, top, bottom } = shows.find(({ view }) => view.tileOf).view.tileOf(block);
  return [left + 0.3 * (right - left), top + 0.6 * (bottom - top)];
}"""
SELECTION = "() => document.querySelector('.labengine').stage.selection"


def test_a_key_fills_the_screen_and_another_one_takes_the_next_step() -> None:
    lab = Lab("simulated", num_blocks=12, block_size=4)
    for _ in range(2):
        lab.add("Two people ask the very same question at the very same moment. The", max_tokens=8)
    lab.step()

    def check(page: ExercisePage) -> None:
        before = page.page.evaluate(SEEN)
        page.press("f")
        assert page.page.evaluate(SEEN) == {
            "panels": ["Block pool", "Block tables"],
            "fills": True,
            "isCut": False,
        }
        for block_id in (0, 7, 11):
            page.page.mouse.click(*page.page.evaluate(TILE, block_id))
            assert page.page.evaluate(SELECTION)["id"] == block_id, "where it is seen, enlarged"
        page.page.locator(".labengine").focus()
        page.press("Space")
        page.answer()
        assert lab.snapshot().step == 2
        page.press("End", "PageUp")
        assert page.data("step") == "1"
        page.press("PageDown")
        assert (page.data("step"), lab.snapshot().step) == ("2", 2), "a step that is recorded is shown"
        page.press("PageDown")
        page.answer()
        assert lab.snapshot().step == 3
        page.press("f")
        assert page.page.evaluate(SEEN) == before and len(before["panels"]) == 4

    def run(pages: BarePages) -> None:
        with _ticked(), pages.lent(1440, 900) as bare:
            page = ExercisePage(bare, cast("PredictExercise", SimpleNamespace(lab=lab)))
            check(page)
            page.close()

    BROWSER.run(run)
