"""What is written can be read: no label under 12 pixels, on a canvas or off it, in any view, wide and narrow."""

from __future__ import annotations

import pytest

from labengine.scenarios import bug
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.compare import compare_page
from widgets.compare.compare_page import ComparePage, show_comparison
from widgets.story_219 import overwriting_step

pytestmark = pytest.mark.browser

LEAST = 12
LISTEN = """() => {
  window.drawn = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.drawn.push([parseFloat(/([0-9.]+)px/.exec(this.font)[1]), text]);
    return fillText.call(this, text, ...rest);
  };
}"""
SMALL = """(least) => {
  const words = document.createTreeWalker(document.querySelector(".labengine"), NodeFilter.SHOW_TEXT), small = [];
  for (let at = words.nextNode(); at; at = words.nextNode()) {
    const { parentElement: holder } = at, size = parseFloat(getComputedStyle(holder).fontSize);
    const isSeen = at.textContent.trim() && holder.getClientRects().length > 0;
    if (isSeen && size && size < least) small.push([size, holder.className, at.textContent]);
  }
  return [...small, ...window.drawn.filter(([size]) => size < least)];
}"""
OPEN = """(name) => {
  const { stage } = document.querySelector(".labengine");
  stage.drawer?.show(name);
  for (const button of document.querySelectorAll(".le-tables-fold[aria-expanded=false]")) button.click();
  stage.repaint();
}"""
TABS = "() => [...(document.querySelector('.labengine').stage.drawer?.tabs.keys() ?? [])]"


def test_in_the_dashboard_and_all_its_tabs() -> None:
    def check(view: View) -> None:
        view.page.evaluate(LISTEN)
        for name in view.page.evaluate(TABS):
            view.page.evaluate(OPEN, name)
            view.painted()
            assert view.page.evaluate(SMALL, LEAST) == [], name
        assert len(view.page.evaluate("() => window.drawn")) > 50

    show_dashboard(check, overwriting_step())


@pytest.mark.parametrize("width", [1220, 720])
def test_in_a_comparison(width: int) -> None:
    def check(page: ComparePage) -> None:
        page.page.evaluate(LISTEN)
        page.press("End")
        page.page.evaluate(OPEN, None)
        page.page.evaluate(compare_page.FRAME)
        assert page.page.evaluate(SMALL, LEAST) == []

    show_comparison(check, bug("nano-vllm-219").compare(), width=width)


@pytest.mark.parametrize("width", [1024, 720])
def test_a_question_is_asked_in_full_beside_nothing_else(width: int) -> None:
    boxes = """() => Object.fromEntries(["le-predict", "le-phases", "le-compare-controls", "le-guide", "labengine"].map(
      (name) => [name, document.querySelector(`.${name}`).getBoundingClientRect().toJSON()]))"""

    def check(page: ComparePage) -> None:
        for _ in range(3):
            page.next_stop()
        assert "How many blocks" in page.text(".le-predict-words")
        found = page.page.evaluate(boxes)
        asked, root = found["le-predict"], found["labengine"]
        for name in ("le-phases", "le-compare-controls", "le-guide"):
            other = found[name]
            assert asked["bottom"] <= other["top"] + 1 or other["bottom"] <= asked["top"] + 1, name
        words = page.page.locator(".le-predict-words")
        assert words.evaluate("(one) => one.scrollWidth <= one.clientWidth && one.scrollHeight <= one.clientHeight + 1")
        last = page.page.locator(".le-predict button").bounding_box()
        assert last and root["left"] <= asked["left"] and last["x"] + last["width"] <= root["right"]
        page.picture(f"question-{width}")

    show_comparison(check, bug("nano-vllm-219").compare(), width=width)
