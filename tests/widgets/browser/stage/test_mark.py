"""A marked moment: shown in the scrubber, with the changes since it counted, and the earlier values shown."""

from __future__ import annotations

import pytest

from labengine import events as ev
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import begin, merging_step

pytestmark = pytest.mark.browser

FLAGS = """() => [...document.querySelectorAll(".le-slide")].map((slide) => {
  const flag = slide.querySelector(".le-flag"), [one, all] = [flag, slide].map((part) => part.getBoundingClientRect());
  return flag.hidden ? null : Math.round(100 * (one.x - all.x) / all.width);
})"""
FRAME = "() => { const { width, height } = document.querySelector('.labengine').getBoundingClientRect(); "
FRAME += "return [width, height]; }"


def two_steps() -> list[ev.Event]:
    """The merging step, and one in which nothing changes."""
    return [*merging_step(), ev.StepStarted(2), ev.ForwardRan(1, 1), ev.StepEnded(2)]


def test_a_flag_and_words_say_which_moment_is_marked() -> None:
    def check(view: View) -> None:
        frame = view.page.evaluate(FRAME)
        assert view.page.evaluate(FLAGS) == [None, None] and not view.page.locator(".le-since").is_visible()
        view.move_to(21)
        view.press("m")
        assert view.text(".le-since") == "since step 1, event 20: nothing has changed"
        steps, moments = view.page.evaluate(FLAGS)
        assert 40 < steps < 60, "step 1 of 0 to 2"
        assert 0 < moments < 100, "and it lies in the step where one stands"
        view.press("PageDown")
        assert view.text(".le-since") == "since step 1, event 20: 6 blocks, 2 requests, 2 hashes changed"
        assert view.page.locator(".le-since").is_visible()
        view.press("End")
        assert view.page.evaluate(FLAGS)[1] is None, "in another step"
        assert view.page.evaluate(FRAME) == frame, "the frame keeps its size"
        view.press("m")
        assert view.page.evaluate(FLAGS) == [None, None] and view.text(".le-since") == ""

    show_dashboard(check, two_steps())


def test_the_end_of_a_step_is_named_so() -> None:
    def check(view: View) -> None:
        view.press("PageUp", "m")
        assert view.text(".le-since").startswith("since the end of step 1: ")
        view.press("m", "PageUp", "m")
        assert view.text(".le-since").startswith("since before step 1: ")

    show_dashboard(check, two_steps())


def test_what_is_outlined_says_what_it_was() -> None:
    def check(view: View) -> None:
        view.move_to(21)
        view.press("m", "End")
        view.page.locator("canvas.le-pool").hover(position={"x": 30, "y": 30})
        assert "\nwas: ref count 1" in view.text(".le-tip")
        view.page.locator(".le-tables-head").first.hover()
        assert "\nwas: running, 14 tokens" in view.text(".le-tip")
        view.page.locator(".le-map-letter").last.hover()
        assert "\nwas: not in the map" in view.text(".le-tip")
        view.press("m")
        view.page.locator("canvas.le-pool").hover(position={"x": 31, "y": 30})
        assert "was:" not in view.text(".le-tip")

    show_dashboard(check, two_steps())


def test_another_recording_has_no_marked_moment() -> None:
    def check(view: View) -> None:
        view.press("m")
        assert view.text(".le-pin") == "Unmark"
        view.say(begin())
        view.answer()
        assert view.text(".le-pin") == "Mark" and view.page.locator(".le-changed").count() == 0
        assert view.page.evaluate(FLAGS) == [None, None] and not view.page.locator(".le-since").is_visible()

    show_dashboard(check, two_steps())


def test_the_same_recording_sent_anew_keeps_it() -> None:
    def check(view: View) -> None:
        view.move_to(21)
        view.press("m", "End")
        changed = view.page.locator(".le-changed").count()
        view.is_deaf = True
        view.say([ev.StepStarted(3), ev.StepEnded(3)])
        view.is_deaf = False
        view.say([ev.StepStarted(4), ev.StepEnded(4)])
        view.answer()
        assert view.data("step") == "4" and view.text(".le-pin") == "Unmark"
        assert view.page.locator(".le-changed").count() == changed > 0

    show_dashboard(check, two_steps())
