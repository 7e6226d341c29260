"""Violations and a failed step cannot be overlooked: counted in red, described, marked, each with its Why?."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.timeline import Timeline
from labengine.scenarios import bug
from labengine_widgets.feed.payload import earlier
from widgets.broken_steps import CONTRADICTED, FAILED, PARTITION, STORY
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.compare.compare_page import ComparePage, show_comparison
from widgets.story_219 import begin, merging_step

pytestmark = pytest.mark.browser

FITS = "(one) => one.getBoundingClientRect().right <= one.parentElement.getBoundingClientRect().right + 1"
RED = "(one) => getComputedStyle(one).backgroundColor"
SELECTED = "() => document.querySelector('.labengine').stage.selection"
OPEN = "() => document.querySelector('.labengine').stage.drawer.open"
SIGN = """(id) => {
  const pool = document.querySelector(".labengine").stage.shows.find(({ view }) => view.tileOf).view;
  const { left, right, bottom } = pool.tileOf(id);
  return [(left + right) / 2, bottom - 11];
}"""


def test_no_violation_no_alarm() -> None:
    def check(view: View) -> None:
        assert view.page.locator(".le-alarm-count:visible, .le-alarm:visible, .le-violated").count() == 0
        assert view.page.locator(".le-is-doubtful").count() == 0

    show_dashboard(check, merging_step())


def test_they_are_counted_in_red_and_described_in_words() -> None:
    def check(view: View) -> None:
        counts = view.page.locator(".le-alarm-count:visible")
        assert counts.all_text_contents() == ["⚠ 2 violations"] * 2, "in the header, and above the sentence"
        assert {count.evaluate(RED) for count in counts.all()} == {"rgb(198, 40, 40)"}
        assert view.text(".le-alarm-words") == f"in step 1: {CONTRADICTED.message}"
        lost = view.page.locator(".le-fact.le-is-doubtful")
        assert lost.count() == 1 and "0 lost" in str(lost.text_content()), "what is counted is what events say"
        assert view.text(".le-sentence") != ""
        view.press("Home")
        assert counts.count() == 0, "at the step's beginning none was found yet"

    show_dashboard(check, [*merging_step(), CONTRADICTED, PARTITION])


def test_it_is_shown_from_the_event_that_broke_the_rule_though_it_is_found_later() -> None:
    def check(view: View) -> None:
        broken_by = CONTRADICTED.first_event
        assert broken_by is not None and broken_by < len(begin()) + len(merging_step())
        for moment, sign in ((broken_by, []), (broken_by + 1, ["⚠ 1 violation"] * 2)):
            view.page.evaluate("(at) => document.querySelector('.labengine').stage.moveTo(at)", moment)
            view.painted()
            assert view.page.locator(".le-alarm-count:visible").all_text_contents() == sign

    show_dashboard(check, [*merging_step(), CONTRADICTED])


def test_one_that_a_hidden_view_has_dropped_is_counted_when_it_is_seen_again() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.display = 'none')")
        view.page.evaluate("() => (document.querySelector('.labengine').stage.sides[0].recording.maxEvents = 20)")
        view.say([*merging_step(), CONTRADICTED])
        for step in range(2, 30):
            view.say([ev.StepStarted(step), ev.StepEnded(step)])
        dropped = view.page.evaluate("() => document.querySelector('.labengine').stage.sides[0].recording.start")
        assert dropped > len(begin()) + len(merging_step())
        view.page.evaluate("() => (document.getElementById('cell').style.display = '')")
        view.press("Escape")
        view.settled()
        assert view.text(".le-alarm-count") == "⚠ 1 violation"

    show_dashboard(check)


def test_each_leads_to_its_why() -> None:
    def check(view: View) -> None:
        first = len(begin()) + len(merging_step())
        count = view.page.locator(".le-facts .le-alarm-count")
        for number in (first, first + 1, first):
            count.click()
            view.painted()
            assert view.page.evaluate(SELECTED) == {"kind": "event", "id": number}
            assert view.page.evaluate(OPEN) == "why"
        view.page.locator("[data-anchor='row:1:0:3'] .le-violated").click()
        view.painted()  # the drawer is scrolled into view, and the sign with it
        assert view.page.evaluate(SELECTED) == {"kind": "event", "id": first + 1}
        view.page.mouse.click(*view.page.evaluate(SIGN, 0))
        assert view.page.evaluate(SELECTED) == {"kind": "event", "id": first}

    show_dashboard(check, [*merging_step(), CONTRADICTED, PARTITION])


def test_blocks_and_entries_are_marked_as_said_and_as_is() -> None:
    def check(view: View) -> None:
        marks = view.page.locator(".le-tables .le-violated")
        places = [mark.evaluate("(one) => one.closest('[data-anchor]').dataset.anchor") for mark in marks.all()]
        texts = dict(zip(places, marks.all_text_contents(), strict=True))
        assert texts == {"row:0:0:0": "said/is", "row:1:0:0": "said/is", "row:1:0:3": "!"}
        for mark in marks.all():
            assert mark.evaluate(FITS)
        view.page.locator("[data-anchor='row:0:0:0']").hover(position={"x": 40, "y": 10})
        tip = view.text(".le-tip")
        assert "said: block 0 left the free queue\n" in tip and "is: it is still in it, at place 3" in tip
        assert "Rules are broken for 2 blocks." in str(view.page.locator(".le-pool").get_attribute("aria-label"))

    show_dashboard(check, [*merging_step(), CONTRADICTED, PARTITION])


def test_in_the_free_queue_what_the_core_has_otherwise_is_marked() -> None:
    def check(view: View) -> None:
        assert "the core's queue differs" in view.text(".le-queue-summary")
        seats = view.page.locator(".le-queue-seat", has=view.page.locator(".le-violated"))
        assert [seat.get_attribute("data-block") for seat in seats.all()] == ["0"]
        seats.locator(".le-violated").click()
        assert view.page.evaluate(SELECTED) == {"kind": "event", "id": len(begin()) + len(merging_step())}
        view.press("Home")
        assert "differs" not in view.text(".le-queue-summary") and seats.count() == 0

    show_dashboard(check, [*merging_step(), CONTRADICTED, PARTITION])


def test_the_failed_step_is_shown() -> None:
    def check(view: View) -> None:
        crash = view.page.locator(".le-alarm .le-alarm-crash")
        assert crash.text_content() == "step 2 failed"
        assert view.text(".le-alarm-words") == (
            "RuntimeError in BlockPool.release: block 1 is freed twice: its ref_count is 0"
        )
        end = int(view.data("end"))
        crash.click()
        view.painted()
        assert int(view.data("moment")) == end - 1, "just before the step was rolled back"
        assert "Step 2 fails in BlockPool.release: RuntimeError" in view.data("sentence")

    show_dashboard(check, STORY)


def test_a_view_that_comes_late_knows_of_them_and_a_reset_ends_them() -> None:
    def check(view: View) -> None:
        view.take([ev.StepStarted(3), ev.StepEnded(3)])
        view.mount()
        view.until("step", "3")
        view.painted()
        assert view.page.locator(".le-facts .le-alarm-count").text_content() == "⚠ 2 violations"
        view.answer()
        view.take([*begin()])
        assert view.page.locator(".le-alarm-count:visible, .le-alarm:visible").count() == 0

    show_dashboard(check, STORY)


def test_what_lies_before_the_events_that_are_sent_is_sent_by_itself() -> None:
    timeline = Timeline.starting_at(Fold())
    for event in [*begin(), *STORY]:
        timeline.record(event)
    assert [number for number, _ in earlier(timeline, timeline.end)] == [
        i for i, event in enumerate(timeline.events()) if event in (CONTRADICTED, PARTITION, FAILED)
    ]
    assert earlier(timeline, 3) == []
    for event in begin():
        timeline.record(event)
    assert earlier(timeline, timeline.end) == [], "the engine has started anew"


def test_in_a_comparison_the_side_that_breaks_a_rule_says_so() -> None:
    def check(page: ComparePage) -> None:
        page.press("End")
        heads = page.page.locator(".le-column-head")
        counts = [head.locator(".le-alarm-count:visible").all_text_contents() for head in heads.all()]
        assert counts[0] and "violation" in counts[0][0] and counts[1] == []
        heads.nth(0).locator(".le-alarm-count").click()
        selected = page.page.evaluate(SELECTED)
        assert selected["kind"] == "event" and selected["side"] == 0
        page.picture("violations")
        page.picture("violations", "dark")

    show_comparison(check, bug("nano-vllm-71").compare())
