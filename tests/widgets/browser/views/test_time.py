"""Timeline and charts in a bare page: one axis of time, with the current moment on it."""

from __future__ import annotations

import pytest

from labengine import events as ev
from widgets.browser.views.time_page import Viewed, busy, show_views, speaks_of_request
from widgets.story_219 import begin, merging_step, overwriting_step

pytestmark = pytest.mark.browser

VERMILION = """
() => {
  const canvas = document.querySelector(".le-timeline-canvas"), context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += Math.abs(data[i] - 0xd5) + Math.abs(data[i + 1] - 0x5e) + Math.abs(data[i + 2]) < 30;
  return count;
}
"""


def test_a_click_goes_there_and_a_drag_scrubs() -> None:
    def check(view: Viewed) -> None:
        box, axis = view.page.locator(".le-timeline-canvas").bounding_box(), view.axis(0)
        assert box is not None

        def x(moment: float) -> float:
            return float(box["x"] + axis["left"] + (moment - axis["from"]) * axis["perEvent"])

        view.page.mouse.move(x(399.5), box["y"] + 30)
        view.page.mouse.down()
        assert view.moment == 400
        view.page.mouse.move(x(699.5), box["y"] + 30, steps=3)
        view.page.mouse.up()
        assert view.moment == 700 and view.selection is None, "a drag selects nothing"
        view.page.mouse.click(x(299.5), box["y"] + 30)
        assert view.moment == 300 and view.selection["kind"] == "event"

    show_views(check, busy(), "timeline")


def test_the_keys_of_time() -> None:
    def check(view: Viewed) -> None:
        canvas = ".le-timeline-canvas"
        view.go_to(500)
        view.press(canvas, "ArrowLeft", "ArrowLeft", "ArrowRight")
        assert view.moment == 499
        view.press(canvas, "Shift+ArrowRight")
        ends = view.js("() => storyOf(side.recording).series.moment")
        assert view.moment == min(end for end in ends if end > 499)
        full = view.axis(0)
        view.press(canvas, "+", "+")
        close = view.axis(0)
        assert close["to"] - close["from"] < (full["to"] - full["from"]) / 2
        assert close["from"] <= view.moment <= close["to"], "one zooms around where one stands"
        view.go_to(2)
        near = view.axis(0)
        assert near["from"] <= 2 <= near["to"], "who goes elsewhere is followed"
        view.press(canvas, "0")
        assert view.axis(0) == full
        assert view.page.locator(canvas).get_attribute("aria-valuenow") == "2"
        assert "of 1," in (view.page.locator(canvas).get_attribute("aria-valuetext") or "")

    show_views(check, busy(), "timeline")


def test_lanes_and_events_are_selected_by_keys() -> None:
    def check(view: Viewed) -> None:
        canvas = ".le-timeline-canvas"
        view.go_to(500)
        view.press(canvas, "Enter")
        assert view.selection == {"kind": "event", "id": 499}, "the event at the pen"
        lanes = view.js("() => stage.shows[0].view.lanes.placed.map(([lane]) => lane.id)")
        view.press(canvas, "ArrowDown", "ArrowDown", "ArrowUp", "ArrowDown", "Enter")
        assert view.selection == {"kind": "request", "id": lanes[1]}
        assert f"request {chr(65 + lanes[1])}" in (view.page.locator(canvas).get_attribute("aria-valuetext") or "")
        view.press(canvas, "ArrowUp", "ArrowUp", "ArrowUp", "ArrowLeft", "Enter")
        assert view.selection == {"kind": "event", "id": 498}, "up from the lanes to the events again"

    show_views(check, busy(), "timeline")


def test_a_chart_shows_the_shown_moment_and_the_selection() -> None:
    pens = """() => {
      const figure = stage.shows[0].view.figures[0], context = figure.canvas.getContext("2d"), rects = [];
      context.fillRect = (x, y, w, h) => context.fillStyle === stage.theme.accent && rects.push([x + w / 2, h]);
      stage.shows[0].view.draw();
      delete context.fillRect;
      const step = (x) => (x - figure.left) / (figure.width / figure.span) - 0.5;
      const steps = (isPen) => rects.filter(([, h]) => h > 10 === isPen).map(([x]) => step(x));
      return { pen: steps(true), marks: steps(false) };
    }"""

    def check(view: Viewed) -> None:
        view.js("() => { stage.theme.accent = '#123456'; }")
        ends = view.js("() => storyOf(side.recording).series.moment")
        view.go_to(ends[6])
        assert view.js(pens)["pen"] == pytest.approx([6])
        view.go_to(ends[6] + 3)
        assert view.js(pens)["pen"] == pytest.approx([6.5]), "inside a step, after the one before"
        view.js("([id]) => stage.select({ kind: 'event', id })", ends[3] + 1)
        assert view.js(pens)["marks"] == pytest.approx([4])
        box = view.page.locator(".le-chart canvas").first.bounding_box()
        x = view.js("() => stage.shows[0].view.figures[0].x(9)")
        assert box is not None
        view.page.mouse.click(box["x"] + x, box["y"] + 30)
        assert view.moment == ends[9]

    show_views(check, busy(), "charts")


def test_a_lane_is_its_request() -> None:
    def check(view: Viewed) -> None:
        box = view.page.locator(".le-timeline-canvas").bounding_box()
        top = view.js("() => stage.shows[0].view.lanesTop")
        assert box is not None
        view.page.mouse.click(box["x"] + 20, box["y"] + top + 26)
        assert view.selection == {"kind": "request", "id": 1}
        marked = view.js("() => stage.shows[0].view.marked")
        assert marked == [
            i for i, event in enumerate(view.view_source.timeline.events()) if speaks_of_request(event, 1)
        ]

    show_views(check, [*begin(), *merging_step()], "timeline")


def test_bands_choose_block_and_moment_and_hatch_what_is_lost() -> None:
    def lost(view: Viewed) -> None:
        box, axis = view.page.locator(".le-timeline-canvas").bounding_box(), view.axis(0)
        rows = view.js("() => stage.shows[0].view.bands.rows")
        assert box is not None and not rows["isBinned"] and rows["numRows"] == 12
        x = box["x"] + axis["left"] + (19.5 - axis["from"]) * axis["perEvent"]
        view.page.mouse.click(x, box["y"] + rows["top"] + rows["height"] * 5.5)
        assert view.moment == 20 and view.selection == {"kind": "block", "id": 5}
        view.press(".le-timeline-canvas", *["ArrowDown"] * 10, "Enter")
        assert view.selection == {"kind": "block", "id": 7}, "below the lanes of A and B"
        assert "#7 is in use, of B" in view.page.locator(".le-timeline-canvas").get_attribute("aria-valuetext")
        assert view.page.evaluate(VERMILION) > 300

    def merged(view: Viewed) -> None:
        assert view.page.evaluate(VERMILION) == 0

    show_views(lost, [*begin(), *overwriting_step()], "timeline")
    show_views(merged, [*begin(), *merging_step()], "timeline")


def test_charts_say_the_step_and_leave_out_what_is_unknown() -> None:
    def unknown(view: Viewed) -> None:
        shown = view.page.locator(".le-chart:visible")
        assert shown.count() == 3
        assert "step 1: 8 of 12 (peak 8)" in (shown.first.text_content() or "")
        assert "step 1: 28 prefill, 0 decode" in (shown.nth(2).text_content() or "")

    def known(view: Viewed) -> None:
        shown = view.page.locator(".le-chart:visible")
        assert shown.count() == 4 and "12.5 ms" in (shown.nth(3).text_content() or "")
        view.press(".le-chart canvas", "ArrowLeft")
        assert view.moment == view.js("() => storyOf(side.recording).series.moment[0]")

    show_views(unknown, [*begin(), *overwriting_step()], "charts")
    show_views(known, [*begin(), *overwriting_step()], "charts", seconds={1: 0.0125})


def test_what_is_new_is_added_and_nothing_twice() -> None:
    events = busy()
    cut = next(i for i, event in enumerate(events) if event == ev.StepStarted(15))

    def check(view: Viewed) -> None:
        version = view.js("() => storyOf(side.recording).version")
        before = view.axis(0)
        from labengine.record.files import codec

        rows = codec.dumps(codec.rows(events[cut:])).decode()
        view.js("([rows]) => { side.recording.more({ start: side.recording.end, events: JSON.parse(rows) }); }", rows)
        view.go_to(len(events))
        assert view.js("() => [storyOf(side.recording).version, storyOf(side.recording).end]") == [version, len(events)]
        assert view.axis(0)["to"] >= len(events) > before["to"]
        assert f"{len(events):,} events" in (view.page.locator(".le-log-count").text_content() or "")

    show_views(check, events[:cut], "timeline", "log")


@pytest.mark.sweep
def test_a_moment_of_100_000_events_is_painted_as_fast_as_one_of_10_000() -> None:
    """A move to another moment must not cost the whole run again, which is ten times as long."""
    once = [event for event in busy(60, 256, 3) if not isinstance(event, ev.EngineStarted)]
    events: list[ev.Event] = [ev.EngineStarted(256, (("full", 4, None),), "labengine")]
    while len(events) < 100_000:
        events += again(once, len(events))

    milliseconds: list[list[float]] = []

    def check(view: Viewed) -> None:
        script = """([to]) => { const times = [], none = new Set();
          const nothing = { all: false, blocks: none, requests: none, keys: none };
          for (const { view } of stage.shows) {
            const started = performance.now();
            view.paint(side.scene, nothing, { moment: to });
            times.push(performance.now() - started);
          }
          return times; }"""
        moments = [view.axis(0)["to"] * tenth // 10 for tenth in range(1, 10)]
        milliseconds.append([min(times) for times in zip(*(view.js(script, to) for to in moments), strict=True)])
        assert view.page.locator("#cell *").count() < 700

    for some in (events[:10_000], events):
        show_views(check, some, "timeline", "log", "charts")
    for short, long in zip(*milliseconds, strict=True):
        assert long < 4 * short + 4, milliseconds


def again(events: list[ev.Event], number: int) -> list[ev.Event]:
    """The run once more, as other requests: their ids and their hashes are others, and no block was left cached."""
    from dataclasses import replace

    shift = 10_000 * number
    added: list[ev.Event] = []
    for event in events:
        if hasattr(event, "request_id"):
            event = replace(event, request_id=event.request_id + shift)
        added.append(event)
    cached = {event.block_id for event in events if isinstance(event, ev.BlockCached)}
    return [*added, *(ev.BlockEvicted(block_id, "reset") for block_id in sorted(cached))]


def test_what_happened_before_can_be_fetched() -> None:
    """A recording of which the page has the end alone says so, and asks for the rest; without a kernel it does not."""

    def check(view: Viewed) -> None:
        earlier = view.page.get_by_role("button", name="fetch earlier events")
        assert earlier.count() == 0, "all is here"
        view.js("() => { side.recording.header.first = -5; stage.repaint(); }")
        assert earlier.count() == 0, "nobody can be asked"
        view.js("() => { stage.wire.source = { send: (message) => (window.asked = message) }; stage.repaint(); }")
        earlier.click()
        assert view.js("() => window.asked.type") == "older"

    show_views(check, [*begin(), *merging_step()], "timeline")
