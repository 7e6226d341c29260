"""A piece of a vLLM's stream that begins, or ends, at a gap: the scrubber draws it, and Why? names it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser.exported_page import opened
from browser.screenshots import keep
from gaps import WHY, opened_cut

pytestmark = pytest.mark.browser

INSIDE = """(gap) => {
  const [piece, slider] = [gap, gap.parentElement.querySelector("input")].map((one) => one.getBoundingClientRect());
  return piece.width > 10 && (piece.right <= slider.left || piece.left >= slider.right);
}"""

TO_THE_START = """() => {
  const { stage } = document.querySelector(".labengine");
  stage.moveTo(stage.track.first);
}"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1252), ("dark", 420)])
def test_a_piece_after_a_gap_says_so(
    scheme: str, width: int, browser: Browser, tmp_path: Path, artifacts: Path
) -> None:
    trace = opened_cut(tmp_path)
    gap = trace.timeline.gap_before
    assert gap is not None
    page = trace.export_html(tmp_path / "run.html")
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 1000}}
    with opened(browser, page, **options) as shown:
        drawn = shown.page.locator(".le-gap:visible")
        assert drawn.count() == 1 and drawn.evaluate(INSIDE), "beside the slider, not under its thumb"
        assert drawn.get_attribute("role") == "img"
        assert drawn.get_attribute("aria-label") == drawn.get_attribute("title") == f"A gap: {gap}."
        shown.page.locator(".labengine").focus()
        shown.page.evaluate(TO_THE_START)
        shown.data("moment")
        back = shown.page.locator(".le-scrub button").first
        assert back.is_disabled() and f"the recording begins here. A gap: {gap}." == back.get_attribute("title")
        keep(shown.page, artifacts / f"gap_{scheme}_{width}.png")
        shown.press("ArrowRight")
        assert back.is_enabled() and WHY not in (back.get_attribute("title") or "")


def test_a_piece_before_a_gap_ends_there(browser: Browser, tmp_path: Path) -> None:
    page = opened_cut(tmp_path, 1).export_html(tmp_path / "run.html")
    with opened(browser, page) as shown:
        drawn = shown.page.locator(".le-gap:visible")
        assert drawn.count() == 1 and drawn.evaluate(INSIDE) and WHY in (drawn.get_attribute("title") or "")
