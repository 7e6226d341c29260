"""A step plays in a page, forward and back, and waits until the view is visible."""

from __future__ import annotations

import pytest

from browser.steady_clock import STEADY_CLOCK, WATCH_PLAYS
from labengine import events as ev
from waiting import wait_until
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

pytestmark = pytest.mark.browser

WATCH = """
() => {
  window.ghosts = 0;
  window.used = [];
  const isGhost = (node) => node.classList?.contains("le-ghost");
  const note = (changes) => {
    for (const { addedNodes, type, target } of changes) {
      window.ghosts += [...addedNodes].filter(isGhost).length;
      if (type === "attributes") window.used.push(target.dataset.used);
    }
  };
  const all = { attributes: true, attributeFilter: ["data-used"], childList: true, subtree: true };
  new MutationObserver(note).observe(document.body, all);
}
"""
"""Count the ghosts that come, and keep the numbers of used blocks that are shown."""

SCROLL_AWAY_FROM_A_PLAY = """
() => {
  const root = document.querySelector(".labengine");
  window.plays = [];
  const note = () => {
    window.plays.push(root.dataset.playing);
    if (root.dataset.playing === "true") document.getElementById("cell").style.marginTop = "-400px";
  };
  new MutationObserver(note).observe(root, { attributes: true, attributeFilter: ["data-playing"] });
}
"""


def test_the_moments_of_a_step_back_and_forth() -> None:
    def check(view: View) -> None:
        assert (view.data("frame"), view.data("numFrames"), view.data("used")) == ("19", "19", "5")
        view.press("Home")
        used = [view.data("used")]
        for _ in range(19):
            view.press("ArrowRight")
            used.append(view.data("used"))
        assert list(dict.fromkeys(used)) == ["0", "4", "8", "7", "6", "5"]
        view.press(*["ArrowLeft"] * 5)
        assert (view.data("frame"), view.data("used"), view.data("phase")) == ("14", "8", "update")
        assert view.text(".le-used") == "8 used of 12"
        assert view.text("[data-anchor='row:1:0:0'] .le-tables-target") == "#4p"
        view.press("End")
        assert view.text("[data-anchor='row:1:0:0'] .le-tables-target") == "#4#0p×2", "with what it was before"

    show_dashboard(check, merging_step())


def test_a_step_plays_by_itself_within_six_seconds() -> None:
    def check(view: View) -> None:
        view.page.evaluate(STEADY_CLOCK)
        view.page.evaluate(WATCH)
        view.page.locator(".labengine").evaluate(WATCH_PLAYS)
        view.say(merging_step())
        view.until("frame", "19")
        view.until("playing", "false")
        used, ghosts, plays = view.page.evaluate("() => [window.used, window.ghosts, window.plays]")
        assert list(dict.fromkeys(used)) == ["4", "8", "7", "6", "5"] and ghosts > 0
        (began, begun), (ended, end) = plays
        assert (began, ended) == ("true", "false") and 2_000 < end - begun < 7_000

    show_dashboard(check, [])


def test_reduced_motion_slides_nothing_and_strikes_the_old_block_through() -> None:
    def check(view: View) -> None:
        view.page.evaluate(WATCH)
        view.say(merging_step())
        assert view.page.wait_for_selector(".le-tables-target s").text_content() in ("#4", "#5", "#6")
        view.press("x")
        assert (view.data("frame"), view.data("playing")) == ("19", "false")
        assert view.page.evaluate("() => window.ghosts") == 0

    show_dashboard(check, [], reduced_motion="reduce")


def test_a_hidden_view_waits_with_the_play_until_it_is_seen_again() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.display = 'none')")
        view.settled()
        view.play_slowly()
        view.say(merging_step())
        view.settled()
        hidden = view.page.evaluate("() => ({...document.querySelector('.labengine').dataset})")
        assert (hidden["used"], hidden["moment"]) == ("0", "3")
        view.page.evaluate("() => (document.getElementById('cell').style.display = '')")
        view.until("playing", "true")
        view.press("Escape")
        assert (view.data("used"), view.data("frame"), view.data("playing")) == ("5", "19", "false")

    show_dashboard(check)


def test_a_step_waits_until_its_sentence_and_the_pool_are_visible() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '-400px')")
        view.settled()
        view.answer()
        view.say(merging_step())
        view.settled()
        assert (view.data("used"), view.data("frame"), view.data("numFrames")) == ("0", "2", "2")
        wait_until(lambda: "press Play" in view.text(".le-message"), "the message", between=view.painted)
        view.page.evaluate(STEADY_CLOCK)
        view.page.evaluate(SCROLL_AWAY_FROM_A_PLAY)
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '0')")
        view.page.wait_for_function("() => window.plays.includes('true') && window.plays.at(-1) === 'false'")
        assert int(view.data("frame")) < 19, "who scrolls away in the middle goes on from there"

    show_dashboard(check)


def test_the_next_step_overtakes_one_that_nobody_saw() -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '-400px')")
        view.settled()
        for events in (merging_step(), [ev.StepStarted(2), ev.StepEnded(2)]):
            view.say(events)
        assert (view.data("used"), view.data("frame"), view.data("numFrames")) == ("5", "19", "19")

    show_dashboard(check)


def test_a_late_view_replays_the_last_step() -> None:
    def check(view: View) -> None:
        view.is_deaf = True
        view.say(merging_step())
        view.is_deaf = False
        view.answer()
        assert (view.data("used"), view.data("peak"), view.data("frame")) == ("5", "8", "19")
        view.press("Home")
        assert (view.data("used"), view.text(".le-step-count")) == ("0", "step 0 of 1")
        view.page.evaluate(STEADY_CLOCK)
        view.page.evaluate(WATCH)
        view.press("r")
        view.page.wait_for_function("() => window.used.includes('8')")
        view.press("Escape")
        assert view.data("used") == "5"

    show_dashboard(check)
