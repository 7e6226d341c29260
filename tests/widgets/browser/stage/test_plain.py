"""The pool in plain terms: it fills the width, draws words and users, and asks for no counting."""

from __future__ import annotations

import pytest

from browser.screenshots import keep
from checkout import ROOT
from labengine.config import ConfigError
from labengine.lab import Lab
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

PICTURES = ROOT / ".artifacts" / "views"

GRID = """() => {
  const { columns, cellWidth } = document.querySelector(".labengine").stage.shows[0].view.grid;
  return columns * cellWidth;
}"""


def test_python_asks_for_it_by_name() -> None:
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        plain, other = lab.view("pool", plain=True), lab.view("pool")
        assert plain.arrangement == {"kind": "view", "views": ["pool"], "is_plain": True}  # type: ignore[attr-defined]
        assert other.arrangement == {"kind": "view", "views": ["pool"]}  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="plain"):
            lab.view("tables", plain=True)
        with pytest.raises(ConfigError, match="plain"):
            lab.view("pool", plain="yes")


@pytest.mark.browser
def test_it_fills_the_width_and_leaves_out_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "arrangement", {"kind": "view", "views": ["pool"], "is_plain": True})

    def check(view: View) -> None:
        width = view.page.locator("canvas.le-pool").evaluate("(canvas) => canvas.clientWidth")
        assert view.page.evaluate(GRID) >= width - 1
        keep(view.page.locator("#cell"), PICTURES / "pool-plain.png")
        assert view.page.locator(".le-scrub input").first.is_hidden()
        view.press("ArrowLeft")
        assert int(view.data("moment")) < int(view.data("end"))

    show_dashboard(check, merging_step())
