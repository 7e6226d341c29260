"""Time in JupyterLab: scrubbing, playing, two moments as a diff, and going back, another way, or to a breakpoint."""

from __future__ import annotations

import pytest

from browser.lab_page import LabPage
from browser.open_view import OpenView, printed, shown
from browser.steady_clock import REAL_CLOCK, STEADY_CLOCK, WATCH_PLAYS

START = "%load_ext labengine\n%lab start --model simulated --blocks 12 --block-size 4"
STEP = """
for _ in range(2):
    lab.add(token_ids=list(range(14)), max_tokens=8)
lab.step(3)
"""
SLIDE = """(root, [which, value]) => {
  const slider = root.querySelectorAll(".le-scrub input[type=range]")[which];
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""
HAS_CAPTIONS = """({ stage: { track, position } }) => {
  const { start, end } = track.span(position);
  return track.captions.covers(start, end);
}"""
STEPS, MOMENTS = 0, 1
"""The two sliders."""


@pytest.fixture
def dashboard(notebook: LabPage) -> OpenView:
    """A new lab after three steps with two equal prompts, shown by %lab start; at the newest moment."""
    view = shown(notebook, START)
    notebook.execute(STEP)
    view.go_to_end()
    assert view.data("step") == "3"
    return view


def slide(view: OpenView, which: int, value: int) -> None:
    view.root.evaluate(SLIDE, [which, value])


@pytest.mark.sweep
def test_one_scrubs_through_steps_and_through_the_moments_of_a_step(dashboard: OpenView) -> None:
    view = dashboard
    slide(view, STEPS, 1)
    view.until("step", "1")
    assert (view.data("used"), view.data("peak")) == ("5", "8")
    view.notebook.wait_for("the captions of step 1", lambda: view.root.evaluate(HAS_CAPTIONS))
    used = []
    for moment in range(1, int(view.data("numFrames")) + 1):
        slide(view, MOMENTS, moment)
        view.until("frame", str(moment))
        used.append(view.data("used"))
    assert list(dict.fromkeys(used)) == ["0", "4", "8", "7", "6", "5"]
    slide(view, STEPS, 3)
    view.until("step", "3")


@pytest.mark.journey
def test_back_forward_and_the_steps_by_key(dashboard: OpenView) -> None:
    view = dashboard
    end = view.data("moment")
    view.press("ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight")
    assert view.data("moment") == end
    for key, label in (("PageUp", "2"), ("PageUp", "1"), ("PageDown", "2"), ("Home", "1"), ("Home", "0")):
        view.press(key)
        assert view.root.locator(".le-step-count").inner_text() == f"step {label} of 3"
    assert view.root.get_by_role("button", name="one moment on (→)").is_enabled()
    view.press("End")
    assert view.data("moment") == end


@pytest.mark.sweep
def test_a_play_goes_at_the_speed_one_chooses(dashboard: OpenView) -> None:
    view, lasted = dashboard, {}
    view.page.evaluate(STEADY_CLOCK)
    view.root.evaluate(WATCH_PLAYS)
    view.root.get_by_label("how fast a play goes").select_option("2")
    for speed, keys in (("2×", ()), ("1×", ("-",))):
        view.press("Home", *keys)
        view.until("step", "2")
        view.page.evaluate("() => (window.plays = [])")
        view.press("r")
        view.notebook.wait_for("the play", lambda: len(view.page.evaluate("() => window.plays")) == 2)
        (_, begun), (_, ended) = view.page.evaluate("() => window.plays")
        lasted[speed] = ended - begun
    view.page.evaluate(REAL_CLOCK)
    assert view.data("step") == "3" and view.data("frame") == view.data("numFrames")
    assert lasted["1×"] > 1.3 * lasted["2×"], lasted


def test_two_moments_are_seen_as_a_difference(dashboard: OpenView) -> None:
    view = dashboard
    slide(view, STEPS, 1)
    view.until("step", "1")
    view.root.get_by_role("button", name="Mark", exact=True).click()
    assert view.root.locator(".le-changed").count() == 0, "from a moment to itself nothing changes"
    view.press("End")
    changed = view.root.locator(".le-changed")
    view.notebook.wait_for("outlines", lambda: changed.count() > 0)
    blocks = {*changed.evaluate_all("(all) => all.map((one) => one.dataset.block)")}
    assert {"3", "7"} <= blocks and not blocks & {"0", "1", "2", "8"}, "only the last block of each has filled since"
    view.screenshot("time-difference")
    view.press("m")
    assert changed.count() == 0


def test_the_magics_look_at_any_moment_and_the_views_go_along(dashboard: OpenView) -> None:
    view, notebook = dashboard, dashboard.notebook
    for line, step in (("back 2", "1"), ("forward", "2"), ("goto 0", "0"), ("goto 3", "3")):
        notebook.execute(f"%lab {line}")
        view.until("step", step)
    notebook.execute("%lab goto 1 3")
    view.until("step", "1")
    assert view.root.evaluate("({ dataset }) => Number(dataset.frame) < Number(dataset.numFrames)")
    assert printed(notebook, "lab.snapshot().step") == "3", "the engine has not moved"
    assert notebook.errors() == []


def test_rewind_brings_the_engine_back_and_fork_goes_another_way(dashboard: OpenView) -> None:
    view, notebook = dashboard, dashboard.notebook
    notebook.execute("%lab rewind 1")
    view.until("step", "1")
    assert printed(notebook, "lab.snapshot().step, lab.check()") == "1 []"
    notebook.execute("%lab rewind 3")
    view.until("step", "3")
    forked = OpenView(notebook, notebook.execute("%lab fork 0 --edition nano-vllm"))
    forked.until("step", "0")
    notebook.execute("fork.step()")
    forked.go_to_end("fork")
    assert (forked.data("used"), forked.data("lost"), forked.data("step")) == ("8", "3", "1")
    assert (view.data("step"), view.data("lost")) == ("3", "0"), "the first lab is as it was"
    assert notebook.errors() == []


def test_a_breakpoint_stops_a_run_and_the_views_show_the_event(notebook: LabPage) -> None:
    view = shown(notebook, START)
    notebook.execute("%lab break BlockMerged block_id=5")
    stopped = notebook.execute(STEP.replace("lab.step(3)", "lab.run()\nlab.stopped_at"))
    said = notebook.text(stopped)
    assert "stopped after step 1" in said and "#5 is merged into the equal #1" in said
    notebook.wait_for("the merge", lambda: "#5 is merged into the equal #1" in view.data("sentence"))
    assert (view.data("step"), view.data("moment")) == ("1", "27"), "inside the step, right after the event"
    view.screenshot("time-breakpoint")
    notebook.execute("%lab break --off\n%lab run --wait")
    notebook.wait_for("the end", lambda: int(view.data("step")) > 6)
    assert notebook.errors() == []
