"""The dashboard's browser half in Chromium, without Jupyter: a bare page, and a model that sends a test's messages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from browser.bare_pages import BROWSER, BarePage, BarePages
from browser.frames import FRAME, painted_data, press, then_painted
from labengine import events as ev
from labengine_widgets.feed import worker
from labengine_widgets.feed.feed import Feed
from labengine_widgets.feed.worker import Worker
from labengine_widgets.view import saved_bytes
from waiting import wait_until
from widgets.fake_view_source import FakeViewSource
from widgets.story_219 import begin

MOUNT = """
async ([saved, arrangement]) => {
  window.unmount?.();
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const { default: widget } = await import("/widget.js");
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
    get: (name) => ({ saved: [view(saved)], arrangement })[name],
    send: (message) => window.sent.push(message),
    on: (name, act) => heard.push([name, act]),
    off: (name, act) => heard.splice(heard.findIndex(([n, a]) => n === name && a === act), 1),
  };
  window.unmount = widget.render({ model, el: document.getElementById("cell") });
  window.numListeners = () => heard.length;
  await document.querySelector(".labengine").stage.wire.queue;
}
"""
MOVE = then_painted("at", "document.querySelector('.labengine').stage.moveTo(at)")
EMIT = then_painted(
    "[content, payload]",
    "window.emit(content, payload); await document.querySelector('.labengine')?.stage.wire.queue",
)
"""A long message is gzipped, and unpacking it takes its time."""

PLAY_FAST = "() => { document.querySelector('.labengine').stage.player.speed = 40; }"
"""At the pace of reading a step takes a minute; a test of the pace sets it."""
PLAY_SLOWLY = "() => { document.querySelector('.labengine').stage.player.speed = 1e-3; }"
WALK = """
async ([moments, scripts]) => {
  const root = document.querySelector(".labengine"), seen = [];
  const asked = scripts.map((script) => (0, eval)(script));
  for (const moment of moments) {
    root.stage.moveTo(moment);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    seen.push(asked.map((ask) => ask(root)));
  }
  return seen;
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
SCROLL_INTO_VIEW = """
async () => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  await new Promise((done) => new IntersectionObserver(done).observe(document.querySelector(".labengine")));
}
"""


class View:
    """A page with one dashboard, and the feed that it hangs on; the tests tick the feed."""

    arrangement: ClassVar[dict[str, Any]] = {"kind": "dashboard", "views": []}

    def __init__(self, bare: BarePage, events: list[ev.Event], words: dict[int, str]) -> None:
        self.bare, self.page = bare, bare.page
        self.is_deaf = False
        self.view_source = FakeViewSource(begin())
        self.view_source.words = words
        self.feed = Feed(self.view_source)
        self.feed.attach(self)
        bare.show('<body data-jp-theme-light="true"><div id="cell" style="width: 1100px"></div></body>')
        self.mount()
        self.until("used", "0")
        if events:
            self.take(events)

    def mount(self) -> None:
        """Show the widget with the state that a notebook saves now; whatever was shown before is gone."""
        saved = base64.b64encode(saved_bytes(self.feed)).decode()
        self.page.evaluate(MOUNT, [saved, self.arrangement])
        self.page.evaluate(PLAY_FAST)

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """The feed's way to the page."""
        if self.is_deaf:
            return
        payload = base64.b64encode(buffers[0]).decode() if buffers else None
        self.page.evaluate(EMIT, [content, payload])

    def update_saved(self) -> None:
        """Nothing is saved here."""

    def close(self) -> None:
        """The page goes."""
        self.feed.detach(self)

    def emit(self, message: dict[str, Any]) -> None:
        self.send(message)

    def say(self, events: list[ev.Event]) -> None:
        """Emit events as the engine does, and let the feed send them."""
        self.view_source.say(events)
        self.feed.tick()

    def answer(self) -> None:
        """Let the feed answer what the page has asked since: four seconds without an answer cover other messages."""
        for message in self.page.evaluate("() => window.sent.splice(0)"):
            self.feed.receive(self, 0, message)
        self.feed.tick()
        self.painted()

    def answer_until(self, what: str, holds: Callable[[], object]) -> None:
        """Answer all that the page asks until something holds."""
        wait_until(holds, what, between=self.answer)

    def settled(self) -> None:
        """Wait until the page knows what of it is in sight: observers are called within one frame."""
        self.page.evaluate(SCROLL_INTO_VIEW)
        self.painted()

    def painted(self) -> None:
        """Wait until what was received and pressed is on the screen."""
        self.page.evaluate(FRAME)

    def take(self, events: list[ev.Event]) -> None:
        """The engine takes a step by hand; the play is skipped."""
        self.say(events)
        self.press("Escape")

    def play_slowly(self) -> None:
        """Plays that begin now last until a test ends them, however slow the machine."""
        self.page.evaluate(PLAY_SLOWLY)

    def move_to(self, moment: int) -> None:
        """Show a moment."""
        self.page.evaluate(MOVE, moment)

    def walk(self, moments: Iterable[int], *scripts: str) -> Iterator[tuple[int, list[Any]]]:
        """Show each moment until it is painted; return each with what these functions of the root said at it."""
        moments = list(moments)
        return zip(moments, self.page.evaluate(WALK, [moments, scripts]), strict=True)

    def press(self, *keys: str) -> None:
        press(self.page.locator(".labengine"), *keys)

    def data(self, name: str) -> str:
        """A data attribute, after the next paint."""
        return painted_data(self.page.locator(".labengine"), name)

    def until(self, name: str, value: str) -> None:
        self.page.wait_for_selector(f".labengine[data-{name}='{value}']")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.text_content() or ""

    def pixels(self, color: list[int]) -> int:
        self.data("used")
        return self.page.evaluate(COUNT_PIXELS, color)

    def sent(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.page.evaluate("() => window.sent") if message["type"] == kind]


def show_dashboard(
    check: Callable[[View], None],
    events: list[ev.Event] | None = None,
    words: dict[int, str] | None = None,
    **options: Any,
) -> None:
    """Run a check on a dashboard; it must leave no error in the page, nor one that the feed met when it sent.

    events: one step; words: texts of tokens; options: the browser's context's.
    """

    def run(pages: BarePages) -> None:
        with _ticked(), pages.lent(1200, 900, **options) as bare:
            view = View(bare, events or [], words or {})
            try:
                check(view)
                assert list(view.feed.failures) == []
            finally:
                view.close()

    BROWSER.run(run)


@contextmanager
def _ticked() -> Iterator[None]:
    """The page belongs to one thread: the feed's own does nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "take_turn", lambda self, closed: False)
        patch.setattr(worker, "IDLE", 0.01)
        yield
