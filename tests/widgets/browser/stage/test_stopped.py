"""Where a run has stopped is shown beside the controls: of a lab, and of a comparison; from Python and by button."""

from __future__ import annotations

from functools import partial

import pytest

import labengine
from browser.open_view import PLAY_FAST
from labengine.events import StepStarted
from labengine.scenarios import bug
from labengine.session.compare.comparison import Comparison
from labengine_widgets.compare.alignment import aligned
from waiting import wait_until
from widgets.browser.stage.dashboard_page import PLAY_SLOWLY, View, show_dashboard
from widgets.compare.compare_page import ComparePage, show_comparison
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

PROMPT = list(range(100, 114))
MESSAGE = ".le-message"


def asked() -> Comparison:
    comparison = labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4)
    for _ in range(2):
        comparison.add(token_ids=PROMPT, max_tokens=3)
    return comparison


def is_wrong(page: ComparePage | View) -> bool:
    return "le-error" in (page.page.locator(MESSAGE).first.get_attribute("class") or "")


def test_a_lab_says_where_it_has_stopped_as_a_note_and_no_error() -> None:
    evil = "stopped after step 1, event 24: <b>B points at #0 now</b> (BlockMerged)"

    def check(view: View) -> None:
        view.answer()
        assert view.text(MESSAGE) == ""
        view.view_source.is_running, view.view_source.stopped = True, evil
        view.feed.tick()
        assert view.text(MESSAGE) == "", "the step is not over"
        view.view_source.is_running = False
        view.feed.tick()
        assert view.text(MESSAGE) == evil and not is_wrong(view)
        assert view.page.locator(f"{MESSAGE} b").count() == 0
        view.view_source.stopped = None
        view.feed.tick()
        assert view.text(MESSAGE) == ""

    show_dashboard(check, merging_step())


def test_both_say_which_side_has_stopped_and_where() -> None:
    comparison = asked()
    breakpoint = comparison.break_on("BlockMerged", into_block_id=0)

    def check(page: ComparePage) -> None:
        comparison.run()
        page.until("the stop", lambda: "stopped after step 1" in page.text(MESSAGE))
        said = page.text(MESSAGE)
        assert said == f"nano-vllm+243 {comparison.stopped_at[1]}" and "BlockMerged into_block_id=0" in said
        assert not is_wrong(page) and page.page.locator(MESSAGE).first.get_attribute("title") == said
        page.until("the event", lambda: page.data("step") == "1 1" and page.data("position") != page.data("end"))
        breakpoint.close()
        page.click("Run")
        page.until("the end", lambda: not comparison.is_running and page.text(MESSAGE) == "")
        assert [snapshot.step for snapshot in comparison.snapshots] == [3, 3]
        page.until("the view", lambda: page.data("step") == "3 3" and page.data("position") == page.data("end"))

    show_comparison(check, comparison)


def test_a_run_of_the_button_says_so_too() -> None:
    comparison = asked()
    comparison.break_on("RequestFinished", request_id=1)

    def check(page: ComparePage) -> None:
        page.click("Run")
        page.until("the stops", lambda: page.text(MESSAGE).count("stopped after step 3") == 2)
        assert page.text(MESSAGE).startswith("nano-vllm stopped") and "; nano-vllm+243 stopped" in page.text(MESSAGE)

    show_comparison(check, comparison)


def test_the_view_goes_where_python_says_on_both_sides() -> None:
    comparison = asked()

    def check(page: ComparePage) -> None:
        comparison.run()
        page.until("the run", lambda: page.data("step") == "3 3" and page.data("position") == page.data("end"))
        comparison.goto(1)
        page.until("step 1", lambda: page.data("step") == "1 1" and page.data("used") == "8 5")
        comparison.back()
        page.until("before it", lambda: page.data("step") == "0 0")
        comparison.forward(9)
        page.until("the newest", lambda: page.data("position") == page.data("end") and page.data("step") == "3 3")
        comparison.selection = ("block", 0)
        marked = [page.page.locator(f".le-column[data-side='{side}'] .le-selected") for side in "01"]
        comparison.goto(1)
        page.until("the choice on both sides", lambda: all(one.count() for one in marked))

    show_comparison(check, comparison)


def test_a_rewind_that_takes_its_time_is_followed_to_its_end() -> None:
    comparison = bug("nano-vllm-219").compare()
    comparison.follow_up()

    def check(page: ComparePage) -> None:
        page.press("End")
        page.until("the end", lambda: page.data("step") == "4 4")

        def pieces(side: int) -> list[str]:
            """What every view hears of the side's events, and the test has not carried yet."""
            messages = [content for content, _ in page.widget.outbox.copy() if content.get("view") is None]
            kinds = [message["type"] for message in messages if message.get("side") == side]
            return [kind for kind in kinds if kind in ("full", "more")]

        for side, lab in enumerate((comparison.left, comparison.right)):
            begins = partial(wait_until, partial(pieces, side), "the beginning of the way back")
            lab.hooks.subscribe(lambda event, begins=begins: begins(), StepStarted)
        comparison.rewind(1)
        for side in (0, 1):
            wait_until(lambda side=side: pieces(side)[1:], "the rest of it: the way back comes in pieces")
            assert pieces(side)[:2] == ["full", "more"]
        page.until("the way back", lambda: page.data("step") == "1 1" and page.data("used") == "8 5")

    show_comparison(check, comparison)


def test_a_way_back_that_is_interrupted_at_its_end_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = asked()
    comparison.run()

    def check(page: ComparePage) -> None:
        def interrupt(step: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(comparison._pair.follow_ups, "note_rewound", interrupt)
        with pytest.raises(KeyboardInterrupt):
            comparison.rewind(1)
        page.until("the way back", lambda: page.data("step") == "1 1" and page.data("used") == "8 5")

    show_comparison(check, comparison)


def test_a_run_during_a_play_ends_at_its_own_end() -> None:
    comparison = asked()

    def check(page: ComparePage) -> None:
        page.page.evaluate(PLAY_SLOWLY)
        comparison.next_phase()
        page.until("the play", lambda: page.data("playing") == "true")
        comparison.run()
        page.page.locator(".labengine").evaluate(PLAY_FAST)
        page.until("the end", lambda: page.data("step") == "3 3" and page.data("position") == page.data("end"))
        assert page.data("playing") == "false", "the play would go back to its own end"

    show_comparison(check, comparison)


def test_a_rewind_of_both_is_followed_and_the_story_goes_on_again() -> None:
    comparison = bug("nano-vllm-219").compare()
    question = "What does it cost later?"

    def go_on(page: ComparePage) -> None:
        page.press("End")
        page.until("the question", lambda: page.page.get_by_role("button", name=question).is_visible())
        page.click(question)
        page.until("what comes later", lambda: page.data("end") == end and page.data("playing") == "false")
        page.press("End")
        assert page.data("step") == "4 4" and page.data("stop") == "9"

    with bug("nano-vllm-219").compare() as played:
        played.follow_up()
        end = str(len(list(aligned(*(timeline.events() for timeline in played.timelines)))))

    def check(page: ComparePage) -> None:
        go_on(page)
        comparison.rewind(1)
        page.until("the way back", lambda: page.data("step") == "1 1" and page.data("used") == "8 5")
        go_on(page)

    show_comparison(check, comparison)
