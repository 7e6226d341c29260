"""Steps in a page: the keys go where lab.back() and lab.forward() go, and every moment belongs to one step."""

from __future__ import annotations

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.record.timeline import Timeline
from labengine.session.history.moments import steps_after, steps_before
from widgets.browser.stage.dashboard_page import View, show_dashboard

LABELS = (
    "(root) => root.dataset.step",
    "(root) => root.querySelector('.le-step-count').textContent.split(' ')[1]",
    "(root) => root.querySelector('.le-scrub input').value",
)
"""The step as head and slider have it."""

pytestmark = pytest.mark.browser


def five_steps() -> list[ev.Event]:
    """Two equal prompts, five steps; a third request comes between step 2 and step 3."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        for _ in range(2):
            lab.add(token_ids=list(range(14)), max_tokens=8)
        lab.step(2)
        lab.add(token_ids=[1, 2, 3], max_tokens=4)
        lab.step(3)
        assert lab.timeline is not None
        return list(lab.timeline.events())


def recorded(view: View) -> Timeline:
    assert view.view_source.timeline is not None
    return view.view_source.timeline


def with_words(view: View) -> None:
    """Wait until the captions of step 4 have come: its moments are counted by them."""
    view.answer_until("the words", lambda: view.data("sentence").startswith("Step 4 ends"))


def labels(view: View) -> tuple[str, str, str]:
    """The step as head, slider and sentence have it."""
    view.painted()
    slider = view.page.locator(".le-scrub input").first
    return view.data("step"), view.text(".le-step-count").split()[1], slider.input_value()


def test_page_up_goes_where_lab_back_goes_and_page_down_takes_it_back() -> None:
    def check(view: View) -> None:
        timeline = recorded(view)
        view.press("End")
        wanted = [timeline.end, *(steps_before([timeline], [None], n)[0] for n in range(1, 6))]
        seen = [int(view.data("moment"))]
        for _ in range(5):
            view.press("PageUp")
            seen.append(int(view.data("moment")))
        assert seen == wanted
        for moment in reversed(wanted[:-1]):
            view.press("PageDown")
            assert int(view.data("moment")) == moment

    show_dashboard(check, five_steps())


def test_from_anywhere_the_keys_move_and_agree_with_the_lab() -> None:
    def check(view: View) -> None:
        timeline = recorded(view)
        start, end = timeline.step_moments(3)
        for moment in range(start - 1, end + 1):
            view.move_to(moment)
            view.press("PageUp")
            back = int(view.data("moment"))
            assert back < moment and (back,) == steps_before([timeline], [moment], 1), moment
            view.move_to(moment)
            view.press("PageDown")
            on = int(view.data("moment"))
            assert on > moment and (on,) == steps_after([timeline], [moment], 1), moment

    show_dashboard(check, five_steps())


def test_one_moment_has_one_label_whoever_goes_there() -> None:
    def check(view: View) -> None:
        timeline = recorded(view)
        view.answer()
        end = timeline.step_moments(4)[1]
        assert timeline.step_moments(5)[0] == end
        view.feed.show_moment(end)
        view.feed.tick()
        with_words(view)
        shown = (*labels(view), view.data("frame"), view.data("numFrames"))
        assert shown[:3] == ("4", "4", "4") and shown[3] == shown[4] != "0"
        slide = """([index, value]) => {
          const slider = document.querySelectorAll(".le-scrub input")[index];
          slider.value = value;
          slider.dispatchEvent(new Event("input"));
        }"""
        view.press("Home")
        view.page.evaluate(slide, [0, 4])
        with_words(view)
        assert int(view.data("moment")) == end
        assert (*labels(view), view.data("frame"), view.data("numFrames")) == shown
        view.press("ArrowRight")
        assert labels(view) == ("5", "5", "5") and view.data("frame") == "1"
        view.press("Home")
        assert (int(view.data("moment")), *labels(view)) == (end, "4", "4", "4")

    show_dashboard(check, five_steps())


def test_at_every_moment_head_and_slider_name_the_same_step() -> None:
    def check(view: View) -> None:
        for moment, labels in view.walk(range(recorded(view).end + 1), *LABELS):
            assert len(set(labels)) == 1, moment

    show_dashboard(check, five_steps())
