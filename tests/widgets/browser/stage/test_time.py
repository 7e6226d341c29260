"""Time and selection in a page: the recording under the scrubber, a marked moment, the selection, and files."""

from __future__ import annotations

from itertools import chain

import pytest

from labengine import events as ev
from labengine_widgets.selection import Selection
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step, overwriting_step

pytestmark = pytest.mark.browser


def many_steps(count: int) -> list[ev.Event]:
    """Steps of 50 events each, in which nothing changes."""
    step = [[ev.StepStarted(n), *[ev.ForwardRan(1, 1)] * 48, ev.StepEnded(n)] for n in range(2, count + 2)]
    return list(chain.from_iterable(step))


def test_the_slider_goes_through_steps_that_the_page_has_never_seen() -> None:
    def check(view: View) -> None:
        view.is_deaf = True
        view.say([*merging_step(), *many_steps(200)])
        view.is_deaf = False
        view.answer()
        assert (view.data("step"), view.data("used")) == ("201", "5")
        assert view.text(".le-step-count") == "step 201 of 201"
        view.page.evaluate("""() => {
          const slider = document.querySelector(".le-scrub input");
          slider.value = 1;
          slider.dispatchEvent(new Event("input"));
        }""")
        view.answer_until("step 1", lambda: view.data("step") == "1")
        assert (view.data("used"), view.data("peak")) == ("5", "8")
        its_words = "Step 1 ends: 5"
        view.answer_until("its words", lambda: view.data("sentence").startswith(its_words))
        view.press(*["ArrowLeft"] * 5)
        assert (view.data("used"), view.data("frame"), view.data("numFrames")) == ("8", "14", "19")
        view.press("PageDown")
        assert (view.data("step"), view.data("frame")) == ("1", "19"), "within a step, to its end"
        view.press("PageDown")
        assert view.data("step") == "2"
        view.press("End")
        assert view.data("step") == "201"

    show_dashboard(check)


def test_python_hears_the_shown_moment_and_may_set_it() -> None:
    def check(view: View) -> None:
        view.press("Home")
        view.answer_until("moment 3", lambda: view.feed.moment == 3)
        view.feed.show_moment(12)
        view.feed.tick()
        assert (view.data("moment"), view.data("phase")) == ("12", "schedule")
        view.press("End")
        view.answer_until("the newest moment", lambda: view.feed.moment is None)

    show_dashboard(check, merging_step())


def test_a_report_that_comes_after_pythons_newest_word_and_was_made_before_it_is_outdated() -> None:
    """On a busy machine, or with a slow connection, a key pressed before `%lab back` arrives after it."""

    def check(view: View) -> None:
        at = "() => window.sent.some(({ type }) => type === 'at')"
        view.press("End")
        view.page.evaluate("(id) => document.querySelector('.labengine').stage.select({ kind: 'block', id })", 2)
        view.page.wait_for_function(at)
        view.feed.show_moment(12)
        view.feed.select(Selection("block", 3))
        view.answer()
        assert (view.feed.moment, view.feed.selection) == (12, Selection("block", 3))
        assert view.data("moment") == "12"
        view.press("Home")
        view.answer_until("a move made after it", lambda: view.feed.moment == 3)
        view.page.evaluate("(id) => document.querySelector('.labengine').stage.select({ kind: 'block', id })", 2)
        view.answer_until("a selection made after it", lambda: view.feed.selection == Selection("block", 2))
        view.feed.select(Selection("block", 3))
        view.mount()
        view.answer()
        view.press("End")
        view.answer_until("the move of a view that opened later", lambda: view.feed.moment is None)

    show_dashboard(check, merging_step())


def test_python_and_the_picture_agree_whoever_spoke_last() -> None:
    def check(view: View) -> None:
        def hears(moment: int | None) -> None:
            view.answer_until(f"moment {moment}", lambda: view.feed.moment == moment)

        view.press("Home")
        hears(3)
        view.feed.show_moment(None)
        view.feed.tick()
        assert view.data("moment") == view.data("end")
        view.press("Home")
        assert view.data("moment") == "3", "the same moment again"
        hears(3)
        view.press("r", "Escape")
        hears(None)
        view.press("Home", "+", "r")
        view.until("playing", "false")
        assert view.data("moment") == view.data("end"), "played to the end"
        hears(None)
        view.press("Home")
        hears(3)
        view.view_source.is_running = True
        view.say([ev.StepStarted(2), ev.StepEnded(2)])
        assert (view.data("moment"), view.feed.moment) == ("3", None)
        view.send(
            {"type": "end", "side": 0, "generation": view.feed.recording.generation, "end": view.feed.recording.end}
        )
        hears(3)  # after a run, of a reader who has stayed behind

    show_dashboard(check, merging_step())


def test_what_is_selected_is_marked_everywhere_and_known_to_python() -> None:
    def check(view: View) -> None:
        view.page.locator("canvas.le-pool").click(position={"x": 30, "y": 30})
        view.answer()
        assert view.feed.selection is not None and (view.feed.selection.kind, view.feed.selection.id) == ("block", 0)
        assert view.page.locator(".le-selected[data-block='0']").count() > 0
        view.press("Escape")
        view.answer()
        assert view.feed.selection is None and view.page.locator(".le-selected").count() == 0
        view.page.locator("canvas.le-pool").focus()
        for key in ("ArrowRight", "ArrowRight", "Enter"):
            view.page.keyboard.press(key)
        view.answer()
        assert view.feed.selection is not None and view.feed.selection.id == 2

    show_dashboard(check, merging_step())


def test_a_marked_moment_shows_what_has_changed_since() -> None:
    def check(view: View) -> None:
        view.press(*["ArrowLeft"] * 6, "m")
        assert view.page.locator(".le-changed").count() == 0
        view.press("End")
        changed = view.page.locator(".le-changed").evaluate_all("(all) => all.map((one) => one.dataset.block)")
        assert {"0", "1", "2", "4", "5", "6"} <= set(changed) and "3" not in changed
        view.press("m")
        assert view.page.locator(".le-changed").count() == 0

    show_dashboard(check, merging_step())


@pytest.mark.parametrize(
    ("place", "kind", "begins"),
    [
        ("pool", "PNG", b"\x89PNG"),
        ("pool", "CSV", b"block,ref_count"),
        ("tables", "PNG", b"\x89PNG"),
        ("tables", "SVG", b"<svg "),
        ("view", "CSV", b"of,id,from_moment,"),
    ],
)
def test_a_view_is_saved_as_a_file(place: str, kind: str, begins: bytes) -> None:
    def check(view: View) -> None:
        view.page.get_by_role("tab", name="Timeline", exact=True).click()
        panel = view.page.locator(".le-drawer" if place == "view" else f".le-{place}-panel")
        panel.get_by_title("save this view as PNG, SVG or CSV").click()
        with view.page.expect_download() as download:
            panel.get_by_role("button", name=kind, exact=True).click()
        data = download.value.path().read_bytes()
        assert data.startswith(begins) and len(data) > 90
        assert download.value.suggested_filename == f"labengine-{place}.{kind.lower()}"
        if (place, kind) == ("pool", "CSV"):
            assert b"'=cmd" in data, "a spreadsheet must not take a token for a formula"

    show_dashboard(check, overwriting_step(), dict.fromkeys(range(200), "=cmd"))
