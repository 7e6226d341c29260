"""A step plays in a page, forward and back, and waits until the view is visible."""

from __future__ import annotations

import pytest

from browser.steady_clock import STEADY_CLOCK
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


def test_a_step_plays_by_itself() -> None:
    def check(view: View) -> None:
        view.page.evaluate(STEADY_CLOCK)
        view.page.evaluate(WATCH)
        view.page.evaluate("() => { document.querySelector('.labengine').stage.player.speed = 4; }")
        view.say(merging_step())
        view.until("frame", "19")
        view.until("playing", "false")
        used, ghosts = view.page.evaluate("() => [window.used, window.ghosts]")
        assert list(dict.fromkeys(used)) == ["4", "8", "7", "6", "5"] and ghosts > 0

    show_dashboard(check, [])


READINGS = """([start, end]) => {
  const { track, player } = document.querySelector(".labengine").stage, readings = [];
  player.speed = 1;
  player.told.clear();
  for (let at = track.next(start); at <= end; at = track.next(at)) {
    readings.push([track.kindAt(at), track.lettersAt(at), player.pace(at)]);
    player.told.add(track.kindAt(at));
    if (at === end) return readings;
  }
}"""
"""Kind, letters and milliseconds of the moments of a stretch, each in its turn."""


def test_a_moment_stands_as_long_as_its_sentence_takes_to_read() -> None:
    def check(view: View) -> None:
        readings = view.page.evaluate(READINGS, [3, int(view.data("end"))])
        assert len(readings) == 19 and all(pace >= 1_200 for _, _, pace in readings)
        known: set[str] = set()
        for kind, letters, pace in readings:
            assert pace == max(1_200, (20 if kind in known else 60) * letters)
            known.add(kind)
        first, *others = [pace for kind, _, pace in readings if kind.startswith("BlockMerged")]
        assert len(others) == 2 and all(first > 2 * other for other in others)
        assert 30_000 < sum(pace for _, _, pace in readings) < 70_000
        view.page.get_by_label("playback speed").select_option("2")
        assert view.page.evaluate("() => document.querySelector('.labengine').stage.player.speed") == 2

    show_dashboard(check, merging_step())


def test_a_step_of_very_many_moments_takes_a_minute() -> None:
    many = [ev.StepStarted(1), *(ev.SlotsWritten(0, 0, i, ((0, i % 4, 1),)) for i in range(300)), ev.StepEnded(1)]

    def check(view: View) -> None:
        paces = [pace for _, _, pace in view.page.evaluate(READINGS, [3, int(view.data("end"))])]
        assert len(paces) > 100 and 30_000 < sum(paces) < 60_000

    show_dashboard(check, many)


def test_what_a_sentence_is_not_about_is_dimmed_while_it_is_told() -> None:
    dimmed = """() => {
      const { stage } = document.querySelector(".labengine"), pool = stage.shows.find(({ view }) => view.tileOf).view;
      const rows = [...document.querySelectorAll(".le-tables-row")].map((row) => row.matches(".le-is-dimmed"));
      return [stage.isPlaying, pool.isTold, [...pool.outlines.focus].sort(), rows];
    }"""

    def check(view: View) -> None:
        view.play_slowly()
        view.press("Home")
        while not view.text(".le-sentence").startswith("B's #4 is merged"):
            view.press("ArrowRight")
        view.press("ArrowLeft", "r")
        view.until("playing", "true")
        assert view.text(".le-sentence").startswith("B's #4 is merged")
        assert view.page.evaluate(dimmed) == [True, True, [0, 4], [True, False]]
        view.press("ArrowRight")
        assert view.page.evaluate(dimmed) == [False, False, [1, 5], [False, False]]

    show_dashboard(check, merging_step())


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
