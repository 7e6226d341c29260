"""In a narrow cell nothing is cut, and no element covers another."""

from __future__ import annotations

from itertools import combinations

import pytest

from labengine import Lab
from labengine.scenarios import bug
from widgets.broken_steps import CONTRADICTED, FAILED, STORY
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.compare.compare_page import ComparePage, show_comparison
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

BOXES = """(selector) => [...document.querySelectorAll(selector)].filter(
  (one) => one.getClientRects().length
).map((one) => {
  const { left, right, top, bottom } = one.getBoundingClientRect();
  return { name: one.className || one.tagName, text: one.textContent, left, right, top, bottom };
})"""
CUT = """(selector) => [...document.querySelectorAll(selector)].filter(
  (one) => one.getClientRects().length
).filter(
  (one) => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 2
).map((one) => one.textContent)"""
OUTSIDE = """() => [...document.querySelectorAll(".le-pair-score > span")].filter(
  (one) => one.getBoundingClientRect().right > one.closest(".le-column-head").getBoundingClientRect().right
).map((one) => one.textContent)"""
RIGHT = "() => document.querySelector('.labengine').getBoundingClientRect().right - 1"
PARTS = ".labengine .le-head > *, .labengine .le-scrub > *, .labengine .le-controls .le-button, .labengine .le-panel"
PAIR_PARTS = (
    ".labengine .le-compare-title, .labengine .le-compare-head :is(button, select),"
    " .labengine .le-guide > *, .labengine .le-pair-score > span"
)
CLIPPED = """() => [...document.querySelectorAll(".le-tables .le-selected")].filter((one) => {
  const { left, right } = one.getBoundingClientRect(), list = one.closest(".le-tables").getBoundingClientRect();
  const { outlineOffset, outlineWidth } = getComputedStyle(one);
  const out = parseFloat(outlineOffset) + parseFloat(outlineWidth);
  return left - out < list.left || right + out > list.right;
}).map((one) => one.textContent)"""
CELL_RIGHT = "() => document.getElementById('cell').getBoundingClientRect().right"
CELL = "(width) => (document.getElementById('cell').style.width = width + 'px')"


def wrong_places(boxes: list[dict[str, float]], right: float) -> list[str]:
    """Elements beyond the right edge, and elements that cover others."""
    cut = [f"{box['name']} is cut" for box in boxes if box["right"] > right]
    return cut + [
        f"{one['name']} and {other['name']} overlap" for one, other in combinations(boxes, 2) if overlap(one, other)
    ]


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    is_beside = one["right"] <= other["left"] + 1 or other["right"] <= one["left"] + 1
    is_above = one["bottom"] <= other["top"] + 1 or other["bottom"] <= one["top"] + 1
    return not (is_beside or is_above)


@pytest.mark.parametrize("width", [844, 545])
def test_a_dashboard_with_a_failed_step(width: int) -> None:
    def check(view: View) -> None:
        view.page.evaluate(CELL, width)
        view.painted()
        assert wrong_places(view.page.evaluate(BOXES, PARTS), view.page.evaluate(RIGHT)) == []
        assert FAILED.message in view.text(".le-alarm-words")
        assert view.page.evaluate(CUT, ".le-alarm-words, .le-sentence, .le-score") == []
        view.page.locator(".le-pin").click()
        view.painted()
        assert wrong_places(view.page.evaluate(BOXES, PARTS), view.page.evaluate(RIGHT)) == []

    show_dashboard(check, STORY)


def test_the_words_of_a_violation_are_read_to_their_end() -> None:
    def check(view: View) -> None:
        assert view.text(".le-alarm-words").endswith("(WrongTouch.touch)")
        for width in (844, 545):
            view.page.evaluate(CELL, width)
            view.painted()
            assert view.page.evaluate(CUT, ".le-alarm-words, .le-sentence") == [], width

    show_dashboard(check, [*merging_step(), CONTRADICTED])


def test_a_comparison_beside_its_story() -> None:
    def check(page: ComparePage) -> None:
        for _ in range(5):
            page.next_stop()
            assert wrong_places(page.page.evaluate(BOXES, PAIR_PARTS), page.page.evaluate(RIGHT)) == []
            assert page.page.evaluate(CUT, ".le-guide-words, .le-caption-both, .le-caption-side") == []
            page.picture("narrow")
            assert page.page.evaluate(OUTSIDE) == []

    show_comparison(check, bug("nano-vllm-219").compare(), width=545)


def test_headings_and_the_legend_of_the_timeline_are_whole() -> None:
    def check(view: View) -> None:
        view.page.get_by_role("tab", name="Timeline", exact=True).click()
        for width in (274, 844, 1260):
            view.page.evaluate(CELL, width)
            view.painted()
            assert view.page.evaluate(RIGHT) <= view.page.evaluate(CELL_RIGHT)
            cut = view.page.evaluate(CUT, ".le-panel h3 > span:first-child, .le-time-key, .le-time-words")
            assert cut == [], width

    show_dashboard(check, merging_step())


@pytest.mark.parametrize("width", [274, 844])
def test_the_lines_of_a_request_do_not_overlap_and_its_outlines_are_whole(width: int) -> None:
    def check(view: View) -> None:
        view.page.evaluate(CELL, width)
        view.press("End")
        view.painted()
        boxes = view.page.evaluate(BOXES, ".le-tables-facts, .le-tables-brief, .le-tables-status")
        assert any("le-tables-brief" in box["name"] for box in boxes)
        assert wrong_places(boxes, view.page.evaluate(RIGHT)) == []
        view.page.locator(".le-tables-head").first.click()
        view.painted()
        assert view.page.locator(".le-tables .le-selected").count() > 1
        assert view.page.evaluate(CLIPPED) == []

    lab = Lab("simulated", num_blocks=9, block_size=4)
    for first in (10, 20, 30):
        lab.add(token_ids=range(first, first + 8), max_tokens=12)
    lab.step(16)  # B was preempted in step 10, and was done in step 15
    show_dashboard(check, lab.timeline.events())
