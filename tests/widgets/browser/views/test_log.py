"""The log in a bare page: every event a line, filters, lines that lead to their moment, and text that stays text."""

from __future__ import annotations

import pytest

from labengine import events as ev
from widgets.browser.views.time_page import Viewed, blocks_of, busy, show_views, speaks_of_request
from widgets.story_219 import begin, overwriting_step

pytestmark = pytest.mark.browser


def test_the_log_lists_all_and_filters() -> None:
    events = busy(num_blocks=14)

    def check(view: Viewed) -> None:
        assert view.page.locator(".le-log-count").text_content() == f"{len(events):,} events"
        assert view.page.locator(".le-log-line").count() < 60, "only the lines in sight exist"
        view.page.locator(".le-log-kinds").select_option("BlockEvicted")
        evicted = [i for i, event in enumerate(events) if isinstance(event, ev.BlockEvicted)]
        assert lines(view)[0] == evicted[0] and counted(view) == len(evicted)
        view.page.locator(".le-log-kinds").select_option("")
        view.page.locator(".le-log-about").fill("#3 B")
        both = [i for i, event in enumerate(events) if speaks_of_request(event, 1) and "3" in blocks_of(event)]
        assert lines(view)[: len(both)] == both and counted(view) == len(both) > 0
        view.page.locator(".le-log-about").fill("#99999")
        assert counted(view) == 0
        view.page.locator(".le-log-about").fill("")
        view.page.locator(".le-log-text").fill("IS PREEMPTED")
        assert lines(view) == [i for i, event in enumerate(events) if isinstance(event, ev.RequestPreempted)] != []

    show_views(check, events, "log")


def lines(view: Viewed) -> list[int]:
    """The events whose lines are there, from top to bottom."""
    view.page.wait_for_function("() => !document.querySelector('.le-log-count').textContent.includes('…')")
    view.painted()
    script = """() => [...document.querySelectorAll(".le-log-line")].sort((a, b) =>
        parseFloat(a.style.top) - parseFloat(b.style.top)).map((line) => Number(line.dataset.event))"""
    return list(view.page.evaluate(script))


def counted(view: Viewed) -> int:
    return int((view.page.locator(".le-log-count").text_content() or "").split()[0].replace(",", ""))


def test_a_line_leads_to_its_moment() -> None:
    def check(view: Viewed) -> None:
        view.page.locator('.le-log-line[data-event="20"]').click()
        assert view.moment == 21 and view.selection == {"kind": "event", "id": 20}
        assert "le-is-selected" in (view.page.locator('[data-event="20"]').get_attribute("class") or "")
        assert view.page.locator(".le-log-line[aria-current]").get_attribute("data-event") == "20"
        view.press(".le-log-list", "Home", "ArrowDown", "Enter")
        assert view.moment == 2 and view.selection == {"kind": "event", "id": 1}
        view.js("() => stage.select({ kind: 'block', id: 0 })")
        related = view.page.locator(".le-is-related").evaluate_all("(all) => all.map((one) => +one.dataset.event)")
        events = view.view_source.timeline.events()
        assert all("0" in blocks_of(events[i]) for i in related) and related
        view.page.locator(".le-log-only").click()
        assert lines(view) == [i for i, event in enumerate(events) if "0" in blocks_of(event)]

    show_views(check, [*begin(), *overwriting_step()], "log")


def test_a_lab_that_records_nothing_says_so() -> None:
    def check(view: Viewed) -> None:
        note, steps = view.page.locator(".le-log-note"), view.page.locator(".le-step-count")
        assert note.is_hidden() and steps.text_content() == "no step yet"
        view.js("() => { side.recording.header = { ...side.recording.header, is_recorded: false }; stage.repaint(); }")
        assert "Lab(..., record=True)" in (note.text_content() or "") and note.is_visible()
        assert steps.text_content() == "recording is off" and "record=True" in (steps.get_attribute("title") or "")

    show_views(check, begin(), "log")


def test_hostile_text_stays_text() -> None:
    evil = "<img src=x onerror='window.pwned=1'>"
    trouble = ev.ViolationFound(evil, evil, (0,), (0,), 1, None)

    def check(view: Viewed) -> None:
        assert "<img" in (view.page.locator(".le-log-list").text_content() or "")
        assert view.page.locator("img").count() == 0
        assert view.page.evaluate("() => window.pwned") is None

    show_views(check, [*begin(), *overwriting_step(), trouble], "log", words=dict.fromkeys(range(200), evil))
