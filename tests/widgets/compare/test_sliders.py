"""Sliders over a workload in the page: dragged, with keys, impossible, without a kernel, and over two engines."""

from __future__ import annotations

from typing import Any

import pytest

from labengine.lab import Lab
from labengine.session.compare.comparing import compare
from widgets.compare.vary_page import VaryPage, show_sliders

pytestmark = pytest.mark.browser

QUESTION = "Why is the sky blue in the day and red in the evening?"


def asked_twice(of: Any) -> Any:
    for _ in range(2):
        of.add(QUESTION, max_tokens=6)
    of.step()
    return of


def lab() -> Lab:
    return asked_twice(Lab("simulated", num_blocks=12, block_size=4))


def test_the_picture_follows_a_drag_and_the_newest_value_wins() -> None:
    def check(view: VaryPage) -> None:
        assert (view.number("tokens in a block"), view.outcome()["peak"], view.data("used")) == ("4", "8", "5")
        view.picture("sliders")
        for size in (5, 6, 7, 8):
            view.slide("tokens in a block", size)
        assert [one["block_size"] for one in view.asked()] == [5], "one run at a time"
        view.carry()
        assert [one["block_size"] for one in view.asked()] == [8], "the figures between are never run"
        view.until("the newest run", lambda: view.outcome()["peak"] == "4")
        assert (view.number("tokens in a block"), view.data("used")) == ("8", "3")
        assert view.widget.arrangement["varied"]["figures"][1]["value"] == 8, "a second view opens with it"

    show_sliders(check, lab())


def test_a_drag_with_the_mouse_and_the_arrow_keys_move_a_slider() -> None:
    def check(view: VaryPage) -> None:
        slider = view.page.get_by_label("blocks in the pool")
        box = slider.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        view.page.mouse.move(box["x"] + box["width"] / 2, middle)
        view.page.mouse.down()
        for part in (0.6, 0.7, 0.8, 0.9):
            view.page.mouse.move(box["x"] + part * box["width"], middle)
        view.page.mouse.up()
        blocks = view.number("blocks in the pool")
        assert int(blocks) > 18
        view.until("a larger pool", lambda: view.page.locator("canvas").get_attribute("aria-label") is not None)
        slider.press("ArrowRight")
        assert view.number("blocks in the pool") == str(int(blocks) + 1)
        assert slider.get_attribute("aria-valuetext") == f"{int(blocks) + 1} blocks in the pool"
        view.until("the run", lambda: view.widget.varied.values["num_blocks"] == int(blocks) + 1)

    show_sliders(check, lab())


def test_an_impossible_figure_says_why_and_the_picture_stays() -> None:
    def check(view: VaryPage) -> None:
        view.slide("blocks in the pool", 2)
        view.until("a refusal", lambda: "blocks" in view.message)
        assert "needs" in view.message
        assert (view.number("blocks in the pool"), view.outcome()["peak"], view.data("used")) == ("2", "8", "5")
        assert view.page.locator(".le-is-old").count() == 2, "the old figures and the old picture are dimmed"
        view.picture("sliders-impossible")
        view.slide("blocks in the pool", 8)
        view.until("a run", lambda: view.message == "" and view.outcome()["peak"] == "8")
        assert view.page.locator(".le-is-old").count() == 0

    show_sliders(check, lab())


def test_both_engines_follow() -> None:
    def check(view: VaryPage) -> None:
        assert [view.outcome(side)["used"] for side in (0, 1)] == ["8", "5"]
        view.picture("sliders-two")
        view.picture("sliders-two", "dark")
        view.slide("copies of A", 4)
        view.until("four copies", lambda: [view.outcome(side)["used"] for side in (0, 1)] == ["16", "7"])
        view.until("the picture", lambda: view.data("used") == "16 7")

    show_sliders(check, asked_twice(compare("nano-vllm", "nano-vllm+243", num_blocks=40, block_size=4)))


def test_the_reader_stays_at_the_step_that_is_looked_at() -> None:
    def check(view: VaryPage) -> None:
        view.page.evaluate("() => void document.querySelector('.labengine').stage.seekStep(1)")
        view.until("step 1", lambda: view.data("step") == "1")
        view.slide("copies of A", 3)
        view.until("three copies", lambda: view.widget.varied.values["copies"] == 3)
        view.until("step 1 of the new run", lambda: (view.data("step"), view.data("used")) == ("1", "6"))

    done = lab()
    done.run()
    show_sliders(check, done)


def test_without_a_kernel_the_sliders_say_what_they_need() -> None:
    def check(view: VaryPage) -> None:
        assert "need" in view.message and "run the cell" in view.message
        assert view.page.get_by_label("copies of A").is_disabled()
        assert view.data("used") == "5", "the picture that was saved is there"

    show_sliders(check, lab(), has_kernel=False)


@pytest.mark.parametrize("width", [360, 980])
def test_sliders_fit_a_narrow_page(width: int) -> None:
    def check(view: VaryPage) -> None:
        view.picture(f"sliders-{width}")
        right = view.page.locator(".labengine-sliders *").evaluate_all(
            "(all) => Math.max(...all.map((one) => one.getBoundingClientRect().right))"
        )
        assert right <= 8 + width

    show_sliders(check, lab(), width=width)
