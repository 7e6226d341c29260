"""The dashboard's browser half in Chromium, without Jupyter: a bare page, and a model that says what the test says."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, Page

from browser.chromium import launched
from labengine import events as ev
from labengine_widgets import feed as feeds
from labengine_widgets.browser import css, esm
from labengine_widgets.feed import Feed
from labengine_widgets.saved import saved_bytes
from widgets.fake_bench import FakeBench
from widgets.story_219 import begin, merging_step, overwriting_step

pytestmark = pytest.mark.browser
T = TypeVar("T")

MOUNT = """
async ([source, saved]) => {
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const { default: widget } = await import("data:text/javascript;base64," + source);
  const heard = [];
  window.sent = [];
  const tell = (name, ...told) => heard.filter(([known]) => known === name).forEach(([, act]) => act(...told));
  const view = (text) => new DataView(bytes(text).buffer);
  window.emit = (content, payload) => tell("msg:custom", content, payload === null ? [] : [view(payload)]);
  window.loseKernel = () => {
    model.send = () => { throw new Error("Cannot send"); };
    tell("comm_live_update");
  };
  const model = {
    get: (name) => ({ saved: [view(saved)], arrangement: { kind: "dashboard", views: [] } })[name],
    send: (message) => window.sent.push(message),
    on: (name, act) => heard.push([name, act]),
    off: (name, act) => heard.splice(heard.findIndex(([n, a]) => n === name && a === act), 1),
  };
  window.unmount = widget.render({ model, el: document.getElementById("cell") });
  window.numListeners = () => heard.length;
}
"""

COUNT_PIXELS = """
([r, g, b]) => {
  const canvas = document.querySelector("canvas"), { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 24;
  return count;
}
"""
COUNT_GHOSTS = """
() => {
  window.ghosts = 0;
  const isGhost = (node) => node.classList?.contains("le-ghost");
  const count = (changes) => {
    for (const { addedNodes } of changes) window.ghosts += [...addedNodes].filter(isGhost).length;
  };
  new MutationObserver(count).observe(document.body, { childList: true, subtree: true });
}
"""

OVERFLOW = """
() => {
  const { scrollWidth, clientWidth } = document.querySelector(".labengine");
  return scrollWidth - clientWidth;
}
"""

VERMILION = [0xD5, 0x5E, 0x00]


class View:
    """A page with one dashboard, and the feed that it hangs on; the tests tick the feed."""

    def __init__(self, page: Page, events: list[ev.Event], words: dict[int, str]) -> None:
        self.page = page
        self.errors: list[str] = []
        self.is_deaf = False
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.bench = FakeBench(begin())
        self.bench.words = words
        self.feed = Feed(self.bench)
        self.feed.attach(self)
        page.set_content('<body data-jp-theme-light="true"><div id="cell" style="width: 1100px"></div></body>')
        page.add_style_tag(content=css())
        saved = base64.b64encode(saved_bytes(self.feed)).decode()
        page.evaluate(MOUNT, [base64.b64encode(esm().encode()).decode(), saved])
        self.until("used", "0")
        if events:
            self.take(events)

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """The feed's way to the page."""
        if self.is_deaf:
            return
        payload = base64.b64encode(buffers[0]).decode() if buffers else None
        self.page.evaluate("([content, payload]) => window.emit(content, payload)", [content, payload])
        self.painted()

    def rest(self) -> None:
        """Nothing is saved here."""

    def close(self) -> None:
        """The page goes."""
        self.feed.detach(self)

    def emit(self, message: dict[str, Any]) -> None:
        self.send(message)

    def say(self, events: list[ev.Event]) -> None:
        """The engine speaks, and the feed hears it."""
        self.bench.say(events)
        self.feed.tick()

    def answer(self) -> None:
        """Let the feed answer what the page has asked since."""
        for message in self.page.evaluate("() => window.sent.splice(0)"):
            self.feed.receive(self, 0, message)
        self.feed.tick()
        self.painted()

    def painted(self) -> None:
        """Wait until what was received and pressed is on the screen."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def take(self, events: list[ev.Event]) -> None:
        """The engine takes a step by hand; the play is skipped."""
        self.say(events)
        self.press("Escape")

    def press(self, *keys: str) -> None:
        self.page.locator(".labengine").focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.painted()

    def data(self, name: str) -> str:
        """A data attribute, after the next paint."""
        self.painted()
        return self.page.evaluate("(name) => document.querySelector('.labengine').dataset[name]", name)

    def until(self, name: str, value: str) -> None:
        self.page.wait_for_selector(f".labengine[data-{name}='{value}']", timeout=10_000)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.text_content() or ""

    def pixels(self, color: list[int]) -> int:
        self.data("used")
        return self.page.evaluate(COUNT_PIXELS, color)

    def sent(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.page.evaluate("() => window.sent") if message["type"] == kind]


@pytest.fixture(autouse=True)
def ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page belongs to one thread: the feed's own does nothing."""
    monkeypatch.setattr(Feed, "_work", lambda self, closed: None)
    monkeypatch.setattr(feeds, "IDLE", 0.01)


@pytest.fixture(scope="module")
def in_browser() -> Iterator[Callable[[Callable[[Browser], T]], T]]:
    """Calls a function with a browser, on a thread of its own: the other browser tests' playwright has the main one."""
    with ThreadPoolExecutor(1) as thread:
        stack = ExitStack()
        browser = thread.submit(lambda: stack.enter_context(launched())).result()
        yield lambda call: thread.submit(call, browser).result()
        thread.submit(stack.close).result()


@pytest.fixture
def look(in_browser: Callable[[Callable[[Browser], None]], None]) -> Callable[..., None]:
    """Run a check on a fresh view; it must leave no error in the page."""

    def run(
        check: Callable[[View], None],
        events: list[ev.Event] | None = None,
        words: dict[int, str] | None = None,
        **options: Any,
    ) -> None:
        def on_page(browser: Browser) -> None:
            with browser.new_context(viewport={"width": 1200, "height": 900}, **options) as context:
                view = View(context.new_page(), events or [], words or {})
                try:
                    check(view)
                    assert view.errors == []
                finally:
                    view.close()

        in_browser(on_page)

    return run


def test_a_saved_state_is_drawn_with_no_kernel_to_ask(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        assert view.data("sentence") == "A and B are in line: take a step, and watch the blocks."
        assert view.text(".le-title") == "fake · 12 blocks of 4"
        assert view.page.locator(".le-tables-row").count() == 2
        assert [message["type"] for message in view.page.evaluate("() => window.sent")] == ["resync"]

    look(check)


def test_the_moments_of_a_step_back_and_forth(look: Callable[..., None]) -> None:
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
        assert view.text("[data-anchor='row:1:0:0'] .le-tables-target") == "→#4p"
        view.press("End")
        assert view.text("[data-anchor='row:1:0:0'] .le-tables-target") == "→#4#0p×2", "with what it was before"

    look(check, merging_step())


def test_a_step_plays_by_itself_within_six_seconds(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.say(merging_step())
        assert view.data("playing") == "true"
        view.until("used", "8")
        view.page.wait_for_selector(".le-ghost", state="attached", timeout=5_000)
        view.until("used", "5")
        view.until("playing", "false")
        assert view.data("frame") == "19"

    look(check, [])


def test_reduced_motion_slides_nothing_and_strikes_the_old_block_through(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.page.evaluate(COUNT_GHOSTS)
        view.say(merging_step())
        assert view.page.wait_for_selector(".le-tables-target s", timeout=10_000).text_content() in ("#4", "#5", "#6")
        view.press("x")
        assert (view.data("frame"), view.data("playing")) == ("19", "false")
        assert view.page.evaluate("() => window.ghosts") == 0

    look(check, [], reduced_motion="reduce")


def test_vermilion_is_for_lost_blocks_alone(look: Callable[..., None]) -> None:
    def merged(view: View) -> None:
        assert (view.data("lost"), view.pixels(VERMILION)) == ("0", 0)

    def overwritten(view: View) -> None:
        assert view.data("lost") == "3"
        assert view.pixels(VERMILION) > 500
        assert view.page.locator(".le-is-lost").text_content() == "3 lost"
        assert view.page.locator(".le-tables-card .le-is-lost-bead").count() == 3

    look(merged, merging_step())
    look(overwritten, overwriting_step())


def test_whatever_a_model_or_a_person_writes_stays_text(look: Callable[..., None]) -> None:
    evil = "<img src=x onerror='window.pwned=1'>"

    def check(view: View) -> None:
        view.emit(
            {"type": "status", "status": {"title": evil, "running": False, "phase": None, "listener_failures": [evil]}}
        )
        view.press("Home", *["ArrowRight"] * 14)
        assert evil in view.data("sentence") or "<img" in view.data("sentence")
        view.page.locator(".le-tables-card").first.hover()
        assert (
            "<img" in view.text(".le-tip")
            and "<img" in view.text(".le-tables-slots")
            and evil in view.text(".le-message")
        )
        assert view.page.locator("img").count() == 0
        assert view.page.evaluate("() => window.pwned") is None

    look(check, merging_step(), dict.fromkeys(range(200), evil))


def test_who_misses_a_message_asks_for_everything(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.answer()
        view.is_deaf = True
        view.say(merging_step())
        view.is_deaf = False
        view.say([ev.StepStarted(2), ev.StepEnded(2)])
        assert view.data("used") == "0"
        assert len(view.sent("resync")) == 1
        view.answer()
        assert (view.data("used"), view.data("step"), view.data("moment")) == ("5", "2", "35")
        view.say([ev.StepStarted(3), ev.StepEnded(3)])
        assert view.sent("resync") == [] and view.data("end") == "37"

    look(check)


def test_keys_send_wishes_and_stay_out_of_the_prompt(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.press("s", "p", " ", "?")
        assert view.page.locator(".le-keys").is_visible()
        view.press("Escape")
        assert view.page.locator(".le-keys").is_hidden()
        view.page.locator(".le-prompt").fill("so, s p ?")
        view.page.locator(".le-prompt").press("Enter")
        actions = [(wish["action"], wish.get("prompt"), wish.get("copies")) for wish in view.sent("wish")]
        assert actions == [("step", None, None), ("phase", None, None), ("start", None, None), ("add", "so, s p ?", 2)]

    look(check)


def test_a_running_lab_can_be_paused_and_not_stepped(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.bench.is_running = True
        view.say(merging_step())
        assert (view.data("running"), view.data("used"), view.data("moment")) == ("true", "5", "33")
        assert view.page.get_by_role("button", name="Step").is_disabled()
        view.page.get_by_role("button", name="Pause").click()
        assert view.sent("wish")[-1]["action"] == "pause"

    look(check)


def test_the_error_of_a_wish_stands_beside_the_controls(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.press("s")
        answer = {"type": "answer", "action": "step", "view": view.sent("wish")[0]["view"], "error": "<b>no room</b>"}
        view.emit(answer | {"view": "another view"})
        assert view.text(".le-message") == ""
        view.emit(answer)
        assert view.text(".le-message") == "step: <b>no room</b>"
        assert view.page.locator(".le-message b").count() == 0

    look(check)


def test_the_frame_keeps_its_size_and_the_cells_their_places(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        def places() -> list[Any]:
            boxes = [view.page.locator(selector).bounding_box() for selector in (".labengine", "canvas")]
            return [*boxes, view.page.evaluate("() => document.documentElement.scrollHeight")]

        before = places()
        view.press("Home")
        for _ in range(19):
            view.press("ArrowRight")
            assert places() == before
        for width in (700, 1300):
            view.page.evaluate("(width) => (document.getElementById('cell').style.width = width + 'px')", width)
            assert view.page.locator(".labengine").bounding_box()["height"] == 670
            assert view.page.evaluate(OVERFLOW) == 0
            for button in ("Add", "Step", "Phase", "Run", "Reset"):
                box = view.page.get_by_role("button", name=button, exact=True).bounding_box()
                assert box["x"] + box["width"] <= 8 + width

    look(check, merging_step())


def test_the_canvas_follows_the_theme(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        dark = "document.documentElement.style.setProperty('--jp-layout-color1', '#111111');"
        dark += "document.documentElement.style.setProperty('--jp-ui-font-color1', '#ffffff');"
        dark += "document.body.dataset.jpThemeLight = 'false';"
        number = view.pixels([0xFF, 0xFF, 0xFF])
        view.page.evaluate(f"() => {{ {dark} }}")
        view.page.wait_for_timeout(300)
        assert view.pixels([0x1D, 0x1D, 0x1D]) > 1000 > view.pixels([0xF4, 0xF4, 0xF4])
        assert view.pixels([0xFF, 0xFF, 0xFF]) != number

    look(check, merging_step())


def test_a_hidden_view_waits_with_the_play_until_it_is_seen_again(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.display = 'none')")
        view.page.wait_for_timeout(200)
        view.say(merging_step())
        view.page.wait_for_timeout(200)
        hidden = view.page.evaluate("() => ({...document.querySelector('.labengine').dataset})")
        assert (hidden["used"], hidden["moment"]) == ("0", "3")
        view.page.evaluate("() => (document.getElementById('cell').style.display = '')")
        view.until("playing", "true")
        view.press("Escape")
        assert (view.data("used"), view.data("frame"), view.data("playing")) == ("5", "19", "false")

    look(check)


def test_a_step_waits_until_its_sentence_and_the_pool_are_in_sight(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '-400px')")
        view.page.wait_for_timeout(200)
        view.say(merging_step())
        view.page.wait_for_timeout(500)
        assert (view.data("used"), view.data("frame"), view.data("numFrames")) == ("0", "0", "19")
        assert "press Play" in view.text(".le-message")
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '0')")
        view.until("playing", "true")
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '-400px')")
        view.until("playing", "false")
        assert int(view.data("frame")) < 19, "who scrolls away in the middle goes on from there"

    look(check)


def test_the_next_step_overtakes_one_that_nobody_saw(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => (document.getElementById('cell').style.marginTop = '-400px')")
        view.page.wait_for_timeout(200)
        for events in (merging_step(), [ev.StepStarted(2), ev.StepEnded(2)]):
            view.say(events)
        assert (view.data("used"), view.data("frame"), view.data("numFrames")) == ("5", "0", "2")

    look(check)


def test_a_late_view_replays_the_last_step(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.is_deaf = True
        view.say(merging_step())
        view.is_deaf = False
        view.answer()
        assert (view.data("used"), view.data("peak"), view.data("frame")) == ("5", "8", "19")
        view.press("Home")
        assert (view.data("used"), view.data("frame")) == ("0", "0")
        view.press("r")
        view.until("used", "8")
        view.press("Escape")
        assert view.data("used") == "5"

    look(check)


def test_a_lost_kernel_is_told_and_nothing_waits_for_it(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        assert view.page.get_by_role("button", name="Step", exact=True).is_enabled()
        view.page.evaluate("() => window.loseKernel()")
        view.painted()
        assert view.text(".le-message").startswith("The kernel that this lab lived in is gone")
        assert view.page.get_by_role("button", name="Step", exact=True).is_disabled()
        view.press("Home")
        assert view.data("used") == "0", "what was seen can still be replayed"

    look(check, merging_step())


def test_nothing_moves_when_a_request_speaks_and_a_block_is_lost(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        def place(of: str) -> tuple[float, float, float]:
            box = view.page.locator(of).last.bounding_box()
            return box["x"], box["y"], box["height"]

        view.press("Home")
        places = set()
        for _ in range(19):
            places.add(tuple(map(place, (".le-used b", ".le-fact", ".le-tables-row"))))
            view.press("ArrowRight")
        assert len(places) == 1

    look(check, overwriting_step())


def test_silence_is_told_until_an_answer_comes(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        assert view.text(".le-message") == ""
        view.page.wait_for_timeout(4200)
        assert view.text(".le-message").startswith("No answer yet: this is the state as it was last seen.")
        view.answer()
        assert view.text(".le-message") == ""

    look(check)


def test_the_view_leaves_nothing_behind(look: Callable[..., None]) -> None:
    def check(view: View) -> None:
        view.page.evaluate("() => window.unmount()")
        assert view.page.locator(".labengine").count() == 0
        assert view.page.evaluate("() => window.numListeners()") == 0
        view.say([ev.StepStarted(2), ev.StepEnded(2)])

    look(check, merging_step())
