"""Presentation mode, in Chromium: tables and pools fill the screen, and one key takes the next step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from browser.bare_pages import BROWSER, BarePages
from browser.frames import FRAME
from labengine.course.predict_exercise import PredictExercise
from labengine.lab import Lab
from labengine.scenarios import bug
from widgets.browser.stage.dashboard_page import _ticked
from widgets.browser.stage.test_asked import ExercisePage
from widgets.compare.compare_page import ComparePage, numbers, show_comparison

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
FILLS_SCREEN = "() => document.fullscreenElement === document.querySelector('.labengine')"
IS_WINDOWED = "() => document.fullscreenElement === null"
TWICE = """async () => {
  const root = document.querySelector(".labengine");
  const isChanged = new Promise((tell) => document.addEventListener("fullscreenchange", tell, { once: true }));
  for (const _ of [1, 2]) root.dispatchEvent(new KeyboardEvent("keydown", { key: "f", bubbles: true }));
  await isChanged;
}"""
SELECTION = "() => document.querySelector('.labengine').stage.selection"


def seen(page: ExercisePage | ComparePage, condition: str) -> Any:
    """What is seen once the browser has given the screen, or has it back, and all is painted in its new size."""
    page.page.wait_for_function(condition)
    page.page.evaluate(FRAME)
    return page.page.evaluate(SEEN)


def test_a_key_fills_the_screen_and_another_one_takes_the_next_step() -> None:
    lab = Lab("simulated", num_blocks=12, block_size=4)
    for _ in range(2):
        lab.add("Two people ask the very same question at the very same moment. The", max_tokens=8)
    lab.step()

    def check(page: ExercisePage) -> None:
        before = page.page.evaluate(SEEN)
        page.press("f")
        assert seen(page, FILLS_SCREEN) == {
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
        assert seen(page, IS_WINDOWED) == before and len(before["panels"]) == 4
        page.page.evaluate(TWICE)
        assert seen(page, IS_WINDOWED) == before, "ended before the browser had given the screen"

    def run(pages: BarePages) -> None:
        with _ticked(), pages.lent(1440, 900) as bare:
            page = ExercisePage(bare, cast("PredictExercise", SimpleNamespace(lab=lab)))
            check(page)
            page.close()

    BROWSER.run(run)


def test_two_engines_take_the_next_step_together() -> None:
    comparison = bug("nano-vllm-219").compare()
    labs = (comparison.left, comparison.right)

    def check(page: ComparePage) -> None:
        before = page.page.evaluate(SEEN)
        page.press("f")
        assert seen(page, FILLS_SCREEN) == {
            "panels": ["Block tables", "Block pool"] * 2,
            "fills": True,
            "isCut": False,
        }
        page.picture("presented", "dark")
        page.press("End", "Space")
        page.until("a step of both", lambda: page.data("step") == "2 2" and page.data("playing") == "false")
        assert [lab.snapshot().step for lab in labs] == [2, 2]
        page.press("PageUp")
        assert page.data("step") == "1 1" and [each["used"] for each in numbers(page)] == ["8", "5"]
        page.press("Space")
        assert page.data("step") == "2 2", "a step that is recorded is shown"
        assert [lab.snapshot().step for lab in labs] == [2, 2]
        page.press("Escape")
        assert seen(page, IS_WINDOWED) == before and len(before["panels"]) == 8

    show_comparison(check, comparison)
