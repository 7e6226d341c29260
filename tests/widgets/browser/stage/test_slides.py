"""A chip that slides is opaque, and sets out from the chip of its place, not from the words beside it."""

from __future__ import annotations

import pytest

from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

CHIP_AT = """() => {
  const { left, right } = document.querySelector("[data-anchor='queue:4'] .le-bead").getBoundingClientRect();
  return (left + right) / 2;
}"""
SLIDE = """async () => {
  const { stage } = document.querySelector(".labengine");
  stage.setSpeed(0.01);
  stage.go(stage.track.next(stage.position), true);
  const chips = [...document.querySelectorAll(".le-ghost")];
  return chips.map((chip) => {
    const [motion] = chip.getAnimations(), { duration } = motion.effect.getTiming();
    motion.pause();
    const looks = [0, 0.5, 0.99].map((part) => {
      motion.currentTime = part * duration;
      const { left, right } = chip.getBoundingClientRect();
      return [getComputedStyle(chip).opacity, getComputedStyle(chip).backgroundColor, (left + right) / 2];
    });
    return [chip.textContent, looks];
  });
}"""


def test_a_sliding_chip_is_opaque_and_leaves_its_seat() -> None:
    def check(view: View) -> None:
        view.settled()
        view.press("Home")
        while "#4" not in view.data("sentence"):
            view.press("ArrowRight")
        view.press("ArrowLeft")
        seat = view.page.evaluate(CHIP_AT)
        slid = dict(view.page.evaluate(SLIDE))
        assert list(slid) == ["#4", "#5", "#6", "#7"]
        for looks in slid.values():
            assert {opacity for opacity, _, _ in looks} == {"1"}
            assert all("rgba" not in ground for _, ground, _ in looks)
        assert abs(slid["#4"][0][2] - seat) < 2

    show_dashboard(check, merging_step())
