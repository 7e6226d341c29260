"""Large pools, long runs and one great prefill: bands use their room, charts are not flattened, cells keep a letter."""

from __future__ import annotations

import pytest

from browser.screenshots import keep
from labengine import Lab
from labengine import events as ev
from labengine.config import GroupSpec
from widgets.browser.views.mounted_view import PICTURES, MountedView, show_view
from widgets.browser.views.view_recordings import crowd, preempting
from widgets.story_219 import begin, merging_step

pytestmark = pytest.mark.browser

LISTEN = """() => {
  window.drawn = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.drawn.push(String(text));
    return fillText.call(this, text, ...rest);
  };
  window.mounted.view.resize?.();
  window.mounted.stage.repaint();
}"""
ROWS = """() => {
  const { bands: { rows }, board, story } = window.mounted.view;
  const top = (id) => rows.top + Math.floor(rows.places.get(id) / rows.perRow) * rows.height;
  const ids = Object.keys(story.bands).map(Number), tops = ids.map(top);
  const ends = { first: Math.min(...tops), last: Math.max(...tops) };
  return { ...ends, top: rows.top, height: board.size.height, idle: rows.numIdle, used: ids.length };
}"""
SCALE = "async ([name, ...values]) => (await import('/widget.js')).internals[name](...values)"
HUES = """() => {
  const canvas = document.querySelector(".le-timeline-canvas"), { width } = canvas, strong = new Set();
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, window.mounted.view.bands.rows.top - 4);
  for (let i = 0; i < data.length; i += 4) {
    const spread = Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]);
    if (data[i + 3] === 255 && spread > 130) strong.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  }
  return [...strong];
}"""
ALARM = "200,0,30"
THEME = f"""() => {{
  const theme = {{ paper: "#fff", ink: "#222", soft: "#666", faint: "#f3f3f3", line: "#bbb", accent: "#555" }};
  Object.assign(window.mounted.stage.theme, theme, {{ alarm: "rgb({ALARM})", ui: "sans-serif", code: "monospace" }});
  window.mounted.view.board?.refresh();
}}"""


def test_of_a_large_pool_the_blocks_that_were_used_fill_the_bands() -> None:
    def check(mounted: MountedView) -> None:
        found = mounted.page.evaluate(ROWS)
        assert found["used"] + found["idle"] == 4096 and found["used"] < 1000
        assert found["first"] == found["top"] and found["last"] > 0.85 * found["height"] - 20, found
        mounted.page.evaluate(LISTEN)
        assert f"{found['idle']:,} of 4,096 blocks were never used" in mounted.page.evaluate("() => window.drawn")

    show_view(check, "timeline", crowd(20, 4096, 3, 180))


def test_a_row_of_many_blocks_says_what_its_darkness_means() -> None:
    def check(mounted: MountedView) -> None:
        assert "blocks per row" in mounted.text(".le-time-density")
        shown = mounted.page.locator(".le-time-swatch").all()
        assert [one.is_visible() for one in shown] == [True] * 4 + [False] * 5, "of requests alone"

    show_view(check, "timeline", crowd(20, 4096, 8, 300), width=900)


CUT_HEIGHTS = """() => {
  const figure = Object.assign(window.mounted.view.figures[2], { most: 20, isCut: true, height: 100 });
  return [20, 2400, 0].map((value) => figure.y(value));
}"""


def test_one_great_step_does_not_flatten_the_others() -> None:
    def check(mounted: MountedView) -> None:
        def ask(name: str, *values: object) -> object:
            return mounted.page.evaluate(SCALE, [name, *values])

        assert ask("scaleOf", [2400, 16, 18, 17, 19, 16]) == {"most": 20, "isCut": True}
        assert ask("scaleOf", [12, 16, 18, 17]) == {"most": 20, "isCut": False}
        assert ask("scaleOf", [2400, 18]) == {"most": 5000, "isCut": False}, "of two steps neither stands out"
        assert ask("scaleOf", [22, 2, 2, 2, 2]) == {"most": 50, "isCut": False}, "both can be read on one axis"
        assert ask("scaleOf", [0, 0]) == {"most": 1, "isCut": False}
        rest, torn, ground = mounted.page.evaluate(CUT_HEIGHTS)
        assert (ground - rest) * 1.3 < ground - torn, "a torn bar is the highest"
        values = ((20_000, "ms"), (5, "ms"), (0, "ms"), (12_000,), (4096,), (0.5, "%"))
        said = [ask("axisLabel", *value) for value in values]
        assert said == ["20 s", "5 ms", "0", "12k", "4096", "50%"]

    show_view(check, "charts", [*begin(), *merging_step()])


def test_the_title_of_a_chart_is_never_cut() -> None:
    cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"

    def check(mounted: MountedView) -> None:
        for width in (900, 300):
            mounted.dress("light", width)
            assert mounted.page.eval_on_selector_all(".le-chart-head, .le-chart-head > *", cut) == [], width

    show_view(check, "charts", crowd(12, 4096, 3, 180))


@pytest.mark.parametrize("num_blocks", [64, 256, 512])
def test_a_cell_of_a_large_pool_has_its_letter_or_its_owner(num_blocks: int) -> None:
    def check(mounted: MountedView) -> None:
        mounted.page.evaluate("() => (window.mounted.view.canvas.style.cssText = 'width: 520px; height: 440px')")
        mounted.page.evaluate(THEME)
        mounted.page.evaluate(LISTEN)
        drawn = mounted.page.evaluate("() => window.drawn")
        assert mounted.page.evaluate("() => Boolean(window.mounted.view.painter)")
        assert {"p", "q", "z"} <= set(drawn), "contents"
        assert {"A", "B", "C"} <= set(drawn), "whose blocks are not full yet"

    show_view(check, "pool", crowd(3, num_blocks, 2, 180))


@pytest.mark.parametrize("width", [520, 340])
def test_a_cell_that_holds_nothing_has_its_number(width: int) -> None:
    def check(mounted: MountedView) -> None:
        mounted.page.evaluate(
            "(width) => (window.mounted.view.canvas.style.cssText = `width: ${width}px; height: 330px`)", width
        )
        mounted.page.evaluate(LISTEN)
        mounted.page.evaluate(THEME)
        drawn = mounted.page.evaluate("() => window.drawn")
        assert {str(block) for block in range(8, 256)} <= set(drawn)

    events = [ev.EngineStarted(256, (("full", 4, None),), "nano-vllm+243"), *begin()[1:], *merging_step()]
    show_view(check, "pool", events)


def test_a_token_without_a_text_is_a_number_apart_from_its_neighbours() -> None:
    with Lab("simulated", num_blocks=4, block_size=8) as lab:
        lab.add(token_ids=[11, 12, 13], max_tokens=2)
        lab.step()
        assert lab.timeline is not None
        events = list(lab.timeline.events())

    def check(mounted: MountedView) -> None:
        mounted.page.evaluate(LISTEN)
        assert any("eleven 12 13" in text for text in mounted.page.evaluate("() => window.drawn"))

    show_view(check, "pool", events, words={11: " eleven"})


def test_in_the_timeline_only_alarm_is_a_strong_colour() -> None:
    quiet = preempting()
    found = ev.ViolationFound("partition", "#1 is in the queue, and held", (0,), (1,), 3, 20)

    def check(mounted: MountedView) -> None:
        mounted.page.evaluate(THEME)
        assert mounted.page.evaluate(HUES) == []
        mounted.more([found])
        mounted.page.evaluate(THEME)
        assert ALARM in mounted.page.evaluate(HUES)

    show_view(check, "timeline", quiet)


@pytest.mark.parametrize("width", [360, 640])
def test_every_held_card_says_its_group_in_a_narrow_pool_too(width: int) -> None:
    groups = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))
    with Lab("simulated", num_blocks=16, groups=groups) as lab:
        lab.add("one two three four five six seven eight nine ten eleven", max_tokens=12)
        lab.step()
        events = list(lab.timeline.events())

    def check(mounted: MountedView) -> None:
        mounted.at(mounted.end)
        mounted.page.evaluate(f"() => (window.mounted.view.canvas.style.cssText = 'width: {width}px; height: 300px')")
        mounted.page.evaluate(THEME)
        mounted.page.evaluate(LISTEN)
        drawn = mounted.page.evaluate("() => window.drawn")
        counts = [{name: drawn.count(name) for name in names} for names in (("full", "window"), ("F", "W"))]
        assert {"full": 3, "window": 3} in counts or {"F": 3, "W": 3} in counts, drawn
        assert {*counts[0].values()} == {0} or {*counts[1].values()} == {0}, "names, or letters, on all cards"
        keep(mounted.page.locator("#root"), PICTURES / f"pool-groups-{width}.png")

    show_view(check, "pool", events)
