"""The views of time in a bare page: timeline, bands, log and charts, and the story of the run behind them."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser.chromium import launched
from labengine import Lab
from labengine import events as ev
from labengine.timeline import Timeline
from labengine_widgets.browser import bundle, css, esm
from labengine_widgets.whole import whole_payload
from widgets.fake_bench import FakeBench
from widgets.story_219 import begin, merging_step, overwriting_step

pytestmark = pytest.mark.browser

MOUNT = """
async ([source, story, data, views]) => {
  const load = (text) => import("data:text/javascript;base64," + text);
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const { mount } = await load(source);
  Object.assign(window, await load(story));
  window.stage = await mount(document.getElementById("cell"), bytes, { kind: "view", views });
  window.side = window.stage.sides[0];
}
"""
ROOT = "--jp-layout-color1: #ffffff; --jp-ui-font-color1: #222222"
VERMILION = """
() => {
  const canvas = document.querySelector(".le-bands-canvas"), context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += Math.abs(data[i] - 0xd5) + Math.abs(data[i + 1] - 0x5e) + Math.abs(data[i + 2]) < 30;
  return count;
}
"""
AT = """
([moments]) => {
  const story = storyOf(side.recording), blocks = [...Array(story.numBlocks).keys()];
  const lives = (moment) => blocks.map((id) => {
    const { life, key, owner, refs } = story.lifeAt(id, moment);
    return [life, key, owner, refs];
  });
  const states = (moment) => [...story.lanes.keys()].map((id) => [id, story.stateAt(id, moment)]);
  return moments.map((moment) => ({ lives: lives(moment), states: states(moment) }));
}
"""
FREE, LIVE, CACHED, LOST = range(4)
STATES = ["waiting", "prefill", "decode", "preempted", "finished", "loading"]


class Viewed:
    """A page that shows views of a recording, by the widget's own layout for single views."""

    def __init__(self, page: Page, bench: FakeBench, views: list[str], width: int) -> None:
        self.page, self.bench = page, bench
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        page.set_content(f'<body style="{ROOT}"><div id="cell" style="width: {width}px"></div></body>')
        page.add_style_tag(content=css())
        sources = [base64.b64encode(text.encode()).decode() for text in (esm(), bundle("model/story.js"))]
        page.evaluate(MOUNT, [*sources, base64.b64encode(whole_payload(bench)).decode(), views])
        page.evaluate("() => { window.side = window.stage.sides[0]; }")
        self.painted()

    def painted(self) -> None:
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def js(self, script: str, *arguments: Any) -> Any:
        self.painted()
        found = self.page.evaluate(script, list(arguments))
        self.painted()
        return found

    @property
    def moment(self) -> int:
        return int(self.js("() => side.moment"))

    @property
    def selection(self) -> Any:
        return self.js("() => stage.selection")

    def press(self, selector: str, *keys: str) -> None:
        self.page.locator(selector).first.focus()
        for key in keys:
            self.page.keyboard.press(key)
            self.painted()

    def stand(self, moment: int) -> None:
        self.js("([moment]) => stage.stand(moment)", moment)

    def axis(self, name: str) -> dict[str, float]:
        """Where the axis of a view lies: left, from, to, perEvent."""
        script = """([at]) => { const { axis } = stage.shows[at].view.board;
            return { left: axis.left, from: axis.from, to: axis.to, perEvent: axis.perEvent }; }"""
        return dict(self.js(script, name))


@pytest.fixture(scope="module")
def on_thread() -> Iterator[Callable[..., Any]]:
    """Calls a function with a browser, on a thread of its own: the other browser tests' playwright has the main one."""
    with ThreadPoolExecutor(1) as thread:
        stack = ExitStack()
        browser = thread.submit(lambda: stack.enter_context(launched())).result()
        yield lambda call: thread.submit(call, browser).result()
        thread.submit(stack.close).result()


@pytest.fixture
def look(on_thread: Callable[..., Any]) -> Callable[..., None]:
    """Run a check on views of a recording; it must leave no error in the page."""

    def run(
        check: Callable[[Viewed], None],
        events: list[ev.Event],
        *views: str,
        words: dict[int, str] | None = None,
        width: int = 1100,
        seconds: dict[int, float] | None = None,
    ) -> None:
        def in_page(browser: Browser) -> None:
            bench = FakeBench(events)
            bench.words = words or {}
            assert bench.timeline is not None
            bench.timeline.step_seconds.clear()
            bench.timeline.step_seconds.update(seconds or {})
            context = browser.new_context(viewport={"width": 1440, "height": 800})
            viewed = Viewed(context.new_page(), bench, list(views), width)
            check(viewed)
            assert viewed.errors == []
            context.close()

        on_thread(in_page)

    return run


def busy(num_requests: int = 14, num_blocks: int = 24, seed: int = 1) -> list[ev.Event]:
    """Shared prefixes, a pool that is too small, requests that come while others run."""
    dice = random.Random(seed)
    with Lab("simulated", num_blocks=num_blocks, block_size=4, max_num_seqs=4, max_num_batched_tokens=16) as lab:
        prefix = [dice.randrange(100) for _ in range(12)]
        for _ in range(num_requests):
            tail = [dice.randrange(100) for _ in range(dice.randrange(2, 20))]
            lab.add(token_ids=prefix[: dice.choice([0, 4, 8, 12])] + tail, max_tokens=dice.randrange(3, 18))
            for _ in range(dice.randrange(4)):
                lab.step()
        lab.run()
        assert lab.timeline is not None
        return list(lab.timeline.events())


def with_rollback(events: list[ev.Event], step: int) -> list[ev.Event]:
    """The same run, but that a step was taken back just before its end, and then done."""
    start = next(i for i, event in enumerate(events) if event == ev.StepStarted(step))
    end = next(i for i, event in enumerate(events) if event == ev.StepEnded(step))
    return [*events[:end], ev.StepRolledBack(step, "KeyboardInterrupt"), *events[start:]]


def expected_lives(timeline: Timeline, moment: int) -> list[tuple[int, int]]:
    """(life, references) of each block, by the fold."""
    fold, lives = timeline.state(moment), []
    for block_id, refs in enumerate(fold.ref_counts):
        keys = fold.block_keys[block_id]
        is_mapped = any(block_id in fold.prefix_map.get(key, ()) for key in keys)
        held = LOST if keys and not is_mapped else LIVE
        lives.append((held if refs else CACHED if is_mapped else FREE, refs))
    return lives


@pytest.mark.parametrize("events", [busy(), with_rollback(busy(), 20), [*begin(), *overwriting_step()]])
def test_the_story_agrees_with_the_fold(look: Callable[..., None], events: list[ev.Event]) -> None:
    def check(view: Viewed) -> None:
        timeline = view.bench.timeline
        assert timeline is not None
        moments = [*range(1, timeline.end, max(1, timeline.end // 60)), timeline.end]
        for moment, told in zip(moments, view.js(AT, moments), strict=True):
            fold = timeline.state(moment)
            assert [(life, refs) for life, _, _, refs in told["lives"]] == expected_lives(timeline, moment), moment
            for block_id, (life, key, owner, _) in enumerate(told["lives"]):
                known = [f"{group}:{block_hash.hex()}" for group, block_hash in fold.block_keys[block_id]]
                assert key == (known[0] if known and life != FREE else None)
                owners = [i for i, r in fold.requests.items() if any(block_id in table for table in r.block_tables)]
                assert owner == (-1 if not owners else owners[0] if len(owners) == 1 else -2), (moment, block_id)
            states = {request: None if state is None else STATES[state] for request, state in told["states"]}
            for request_id, request in fold.requests.items():
                expected = {request.status} if request.status != "running" else {"prefill", "decode"}
                assert states[request_id] in expected, (moment, request_id)

    look(check, events, "timeline")


def test_the_figures_per_step_are_those_of_the_run(look: Callable[..., None]) -> None:
    events = with_rollback(busy(), 20)

    def check(view: Viewed) -> None:
        timeline = view.bench.timeline
        assert timeline is not None
        series = view.js("() => storyOf(side.recording).series")
        assert series["step"] == list(range(1, max(series["step"]) + 1))
        assert series["used"] == [timeline.state(moment).num_used_blocks for moment in series["moment"]]
        assert all(peak >= used for peak, used in zip(series["peak"], series["used"], strict=True))
        real = [event for i, event in enumerate(events) if i not in undone(events)]
        sampled = sum(isinstance(event, ev.TokenSampled) for event in real)
        scheduled = sum(event.num_tokens for event in real if isinstance(event, ev.RequestScheduled))
        assert sum(series["sampled"]) == sampled and sum(series["prefill"]) + sum(series["decode"]) == scheduled
        lengths = {event.request_id: len(event.token_ids) for event in real if isinstance(event, ev.RequestAdded)}
        hits = [event for event in real if isinstance(event, ev.PrefixHit)]
        assert series["looked"][-1] == sum(lengths[event.request_id] for event in hits)
        assert series["hit"][-1] == sum(min(event.num_tokens, lengths[event.request_id]) for event in hits) > 0

    look(check, events, "charts")


def undone(events: list[ev.Event]) -> set[int]:
    """The numbers of the events of the step that was taken back."""
    end = next(i for i, event in enumerate(events) if isinstance(event, ev.StepRolledBack))
    start = max(i for i in range(end) if isinstance(events[i], ev.StepStarted))
    return set(range(start, end + 1))


def test_a_click_stands_there_and_a_drag_scrubs(look: Callable[..., None]) -> None:
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

    look(check, busy(), "timeline")


def test_the_keys_of_time(look: Callable[..., None]) -> None:
    def check(view: Viewed) -> None:
        canvas = ".le-timeline-canvas"
        view.stand(500)
        view.press(canvas, "ArrowLeft", "ArrowLeft", "ArrowRight")
        assert view.moment == 499
        view.press(canvas, "Shift+ArrowRight")
        ends = view.js("() => storyOf(side.recording).series.moment")
        assert view.moment == min(end for end in ends if end > 499)
        whole = view.axis(0)
        view.press(canvas, "+", "+")
        close = view.axis(0)
        assert close["to"] - close["from"] < (whole["to"] - whole["from"]) / 2
        assert close["from"] <= view.moment <= close["to"], "one zooms around where one stands"
        view.stand(2)
        near = view.axis(0)
        assert near["from"] <= 2 <= near["to"], "who goes elsewhere is followed"
        view.press(canvas, "0")
        assert view.axis(0) == whole
        assert view.page.locator(canvas).get_attribute("aria-valuenow") == "2"
        assert "of 1," in (view.page.locator(canvas).get_attribute("aria-valuetext") or "")

    look(check, busy(), "timeline")


def test_a_lane_is_its_request(look: Callable[..., None]) -> None:
    def check(view: Viewed) -> None:
        box = view.page.locator(".le-timeline-canvas").bounding_box()
        top = view.js("() => stage.shows[0].view.lanesTop")
        assert box is not None
        view.page.mouse.click(box["x"] + 20, box["y"] + top + 26)
        assert view.selection == {"kind": "request", "id": 1}
        marked = view.js("() => stage.shows[0].view.marked")
        assert marked == [i for i, event in enumerate(view.bench.timeline.events()) if speaks_of_request(event, 1)]

    look(check, [*begin(), *merging_step()], "timeline")


def speaks_of_request(event: ev.Event, request_id: int) -> bool:
    return getattr(event, "request_id", None) == request_id or request_id in getattr(event, "request_ids", ())


def test_bands_choose_block_and_moment_and_hatch_what_is_lost(look: Callable[..., None]) -> None:
    def lost(view: Viewed) -> None:
        box, axis = view.page.locator(".le-bands-canvas").bounding_box(), view.axis(0)
        rows = view.js("() => stage.shows[0].view.rows")
        assert box is not None and not rows["isBinned"] and rows["numRows"] == 12
        x = box["x"] + axis["left"] + (19.5 - axis["from"]) * axis["perEvent"]
        view.page.mouse.click(x, box["y"] + 14 + rows["height"] * 5.5)
        assert view.moment == 20 and view.selection == {"kind": "block", "id": 5}
        view.press(".le-bands-canvas", "ArrowDown", "ArrowDown")
        assert view.selection == {"kind": "block", "id": 7}
        assert "#7 is in use, of B" in view.page.locator(".le-bands-canvas").get_attribute("aria-valuetext")
        assert view.page.evaluate(VERMILION) > 300

    def merged(view: Viewed) -> None:
        assert view.page.evaluate(VERMILION) == 0

    look(lost, [*begin(), *overwriting_step()], "bands")
    look(merged, [*begin(), *merging_step()], "bands")


def test_the_log_tells_all_and_filters(look: Callable[..., None]) -> None:
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

    look(check, events, "log")


def blocks_of(event: ev.Event) -> set[str]:
    """Numbers of the blocks that an event speaks of."""
    ids = [getattr(event, "block_id", None), getattr(event, "into_block_id", None), *getattr(event, "mapped", ())]
    ids += [block_id for group in getattr(event, "block_ids", ()) if isinstance(group, tuple) for block_id in group]
    ids += [run[0] for run in getattr(event, "runs", ())]
    return {str(block_id) for block_id in ids}


def lines(view: Viewed) -> list[int]:
    """The events whose lines are there, from top to bottom."""
    view.page.wait_for_function("() => !document.querySelector('.le-log-count').textContent.includes('…')")
    view.painted()
    script = """() => [...document.querySelectorAll(".le-log-line")].sort((a, b) =>
        parseFloat(a.style.top) - parseFloat(b.style.top)).map((line) => Number(line.dataset.event))"""
    return list(view.page.evaluate(script))


def counted(view: Viewed) -> int:
    return int((view.page.locator(".le-log-count").text_content() or "").split()[0].replace(",", ""))


def test_a_line_leads_to_its_moment(look: Callable[..., None]) -> None:
    def check(view: Viewed) -> None:
        view.page.locator('.le-log-line[data-event="20"]').click()
        assert view.moment == 21 and view.selection == {"kind": "event", "id": 20}
        assert "le-is-chosen" in (view.page.locator('[data-event="20"]').get_attribute("class") or "")
        assert view.page.locator(".le-log-line[aria-current]").get_attribute("data-event") == "20"
        view.press(".le-log-list", "Home", "ArrowDown", "Enter")
        assert view.moment == 2 and view.selection == {"kind": "event", "id": 1}
        view.js("() => stage.select({ kind: 'block', id: 0 })")
        related = view.page.locator(".le-is-related").evaluate_all("(all) => all.map((one) => +one.dataset.event)")
        events = view.bench.timeline.events()
        assert all("0" in blocks_of(events[i]) for i in related) and related
        view.page.locator(".le-log-only").click()
        assert lines(view) == [i for i, event in enumerate(events) if "0" in blocks_of(event)]

    look(check, [*begin(), *overwriting_step()], "log")


def test_hostile_text_stays_text(look: Callable[..., None]) -> None:
    evil = "<img src=x onerror='window.pwned=1'>"
    trouble = ev.ViolationFound(evil, evil, (0,), (0,), 1, None)

    def check(view: Viewed) -> None:
        assert "<img" in (view.page.locator(".le-log-list").text_content() or "")
        assert view.page.locator("img").count() == 0
        assert view.page.evaluate("() => window.pwned") is None

    look(check, [*begin(), *overwriting_step(), trouble], "log", words=dict.fromkeys(range(200), evil))


def test_charts_say_the_step_and_leave_out_what_is_unknown(look: Callable[..., None]) -> None:
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

    look(unknown, [*begin(), *overwriting_step()], "charts")
    look(known, [*begin(), *overwriting_step()], "charts", seconds={1: 0.0125})


def test_what_is_new_is_added_and_nothing_is_told_twice(look: Callable[..., None]) -> None:
    events = busy()
    cut = next(i for i, event in enumerate(events) if event == ev.StepStarted(15))

    def check(view: Viewed) -> None:
        version = view.js("() => storyOf(side.recording).version")
        before = view.axis(0)
        from labengine.trace import codec

        rows = codec.dumps(codec.rows(events[cut:])).decode()
        view.js("([rows]) => { side.recording.more({ start: side.recording.end, events: JSON.parse(rows) }); }", rows)
        view.stand(len(events))
        assert view.js("() => [storyOf(side.recording).version, storyOf(side.recording).end]") == [version, len(events)]
        assert view.axis(0)["to"] >= len(events) > before["to"]
        assert f"{len(events):,} events" in (view.page.locator(".le-log-count").text_content() or "")

    look(check, events[:cut], "timeline", "bands", "log")


def test_100_000_events_are_painted_within_a_blink(look: Callable[..., None]) -> None:
    """Standing elsewhere must not cost the whole run again: a moment of the 16 ms of a frame, with two cores shared."""
    once = [event for event in busy(60, 256, 3) if not isinstance(event, ev.EngineStarted)]
    events: list[ev.Event] = [ev.EngineStarted(256, (("full", 4, None),), "labengine")]
    while len(events) < 100_000:
        events += again(once, len(events))

    def check(view: Viewed) -> None:
        script = """([to]) => { const times = [], none = new Set();
          const nothing = { all: false, blocks: none, requests: none, keys: none };
          for (const { view } of stage.shows) {
            const started = performance.now();
            view.paint(side.scene, nothing, { moment: to });
            times.push(performance.now() - started);
          }
          return times; }"""
        worst = [
            min(times) for times in zip(*(view.js(script, moment) for moment in (50_000, 70_000, 90_000)), strict=True)
        ]
        assert max(worst) < 16, worst
        assert view.page.locator("#cell *").count() < 700

    look(check, events, "timeline", "bands", "log", "charts")


def again(events: list[ev.Event], number: int) -> list[ev.Event]:
    """The run once more, as other requests: their ids and their hashes are others, and no block was left cached."""
    from dataclasses import replace

    shift = 10_000 * number
    told: list[ev.Event] = []
    for event in events:
        if hasattr(event, "request_id"):
            event = replace(event, request_id=event.request_id + shift)
        told.append(event)
    cached = {event.block_id for event in events if isinstance(event, ev.BlockCached)}
    return [*told, *(ev.BlockEvicted(block_id, "reset") for block_id in sorted(cached))]


def test_what_happened_before_can_be_fetched(look: Callable[..., None]) -> None:
    """A recording of which the page has the end alone says so, and asks for the rest; without a kernel it does not."""

    def check(view: Viewed) -> None:
        earlier = view.page.get_by_role("button", name="fetch what happened before")
        assert earlier.count() == 0, "all is here"
        view.js("() => { side.recording.header.first = -5; stage.repaint(); }")
        assert earlier.count() == 0, "nobody can be asked"
        view.js("() => { stage.wire.source = { send: (message) => (window.asked = message) }; stage.repaint(); }")
        earlier.click()
        assert view.js("() => window.asked.type") == "older"

    look(check, [*begin(), *merging_step()], "timeline")
