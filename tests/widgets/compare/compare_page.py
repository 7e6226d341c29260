"""A compare view on a bare page, without Jupyter: the widget's own messages, carried there and back by the test."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from browser.bare_pages import BROWSER, BarePage, BarePages
from browser.frames import FRAME, painted_data, press
from browser.open_view import HAS_CAPTIONS, PLAY_FAST
from browser.screenshots import ARE_KEPT, keep
from checkout import ROOT
from labengine.session.compare.comparison import Comparison
from labengine_widgets.compare.view import CompareView
from waiting import wait_until
from widgets.browser.views.mounted_view import THEMES

PICTURES = ROOT / ".artifacts" / "compare"

MOUNT = """
async ([saved, arrangement, hasKernel, early]) => {
  window.unmount?.();
  const { default: widget } = await import("/widget.js");
  const heard = [];
  window.sent = [];
  const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  window.emit = (message, buffers) => {
    for (const [name, act] of heard) if (name === "msg:custom") act(message, buffers.map(bytes));
  };
  const values = { arrangement, saved: saved.map(bytes) };
  const model = {
    get: (name) => values[name],
    send(message) {
      if (!hasKernel) throw new Error("Cannot send");
      window.sent.push(message);
    },
    on: (name, act) => heard.push([name, act]),
    off: (name, act) => heard.splice(heard.findIndex(([n, a]) => n === name && a === act), 1),
  };
  window.unmount = widget.render({ model, el: document.getElementById("cell") });
  for (const [message, buffers] of early) window.emit(message, buffers);
  await document.querySelector(".labengine").stage.wire.queue;
}
"""

EMIT = """async ([message, buffers]) => {
  window.emit(message, buffers);
  await document.querySelector(".labengine").stage.wire.queue;
}"""
"""A long message is gzipped, and unpacking it takes its time."""

PLACES = """
() => Object.fromEntries([...document.querySelectorAll(
  ".le-column, .le-column-head, .le-panel, .le-story, .le-captions, .le-pair-time, .le-tables-row," +
  "[data-anchor^='row:']"
)].map((one, i) => {
  const { x, y, width } = one.getBoundingClientRect();
  const side = one.closest("[data-side]")?.dataset.side ?? "";
  return [side + (one.dataset.anchor || one.className.split(" ")[0] + i), [x, y, width]];
}))
"""


class Carried(CompareView):
    """Its messages wait for the test to carry them."""

    def __init__(self, *arguments: Any) -> None:
        self.outbox: deque[tuple[dict[str, Any], list[bytes]]] = deque()
        super().__init__(*arguments)

    def send(self, content: dict[str, Any], buffers: Sequence[bytes] | None = None) -> None:
        self.outbox.append((content, list(buffers or ())))


class ComparePage:
    """A page on which one comparison is shown; has_kernel=False: as a notebook that was saved and opened again."""

    def __init__(self, bare: BarePage, comparison: Comparison, width: int = 1220, *, has_kernel: bool = True) -> None:
        self.bare, self.page, self.comparison, self.has_kernel = bare, bare.page, comparison, has_kernel
        self.widget = comparison._view = Carried(comparison)
        bare.show(f'<body data-jp-theme-light="true"><div id="cell" style="width: {width}px"></div></body>')
        self.carried: list[tuple[dict[str, Any], list[str]]] = []
        self.mount(self.widget.saved)

    def mount(self, saved: Sequence[bytes], early: Sequence[tuple[dict[str, Any], list[str]]] = ()) -> None:
        """Show the widget, with this saved state and these messages on its heels; whatever was shown before is gone.

        It plays fast, as nobody watches: a test of the play itself sets the speed.
        """
        arrangement = self.widget.arrangement
        self.page.evaluate(MOUNT, [texts_of_bytes(saved), arrangement, self.has_kernel, list(early)])
        root = self.page.locator(".labengine")
        self.until("the comparison", lambda: self.data("position") is not None and root.evaluate(HAS_CAPTIONS))
        root.evaluate(PLAY_FAST)

    # -- carrying ------------------------------------------------------------------------------------------------------

    def carry(self) -> None:
        """Both ways, what has been said so far."""
        if not self.has_kernel:
            return
        for message in self.page.evaluate("() => (window.sent ?? []).splice(0)"):
            self.widget._receive(self.widget, message, [])
        while self.widget.outbox:
            content, buffers = self.widget.outbox.popleft()
            self.carried.append((content, texts_of_bytes(buffers)))
            self.page.evaluate(EMIT, list(self.carried[-1]))

    def until(self, what: str, holds: Callable[[], object]) -> None:
        def carried() -> None:
            self.carry()
            self.page.evaluate(FRAME)

        wait_until(holds, lambda: f"{what}: {self.bare.errors} {self.all_data()}", between=carried)

    # -- looking -------------------------------------------------------------------------------------------------------

    def data(self, name: str) -> str | None:
        """A data attribute, after the next paint."""
        value = painted_data(self.page.locator(".labengine"), name)
        return None if value is None else str(value)

    def all_data(self) -> dict[str, str]:
        found: dict[str, str] = self.page.evaluate("() => ({ ...document.querySelector('.labengine').dataset })")
        return found

    def text(self, selector: str, number: int = 0) -> str:
        return str(self.page.locator(selector).nth(number).text_content() or "")

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_text_contents()

    def places(self) -> dict[str, list[float]]:
        """Positions of all elements."""
        self.page.evaluate(FRAME)
        found: dict[str, list[float]] = self.page.evaluate(PLACES)
        return found

    # -- doing ---------------------------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        for key in keys:
            press(self.page.locator(".labengine"), key)

    def next_stop(self) -> str:
        """On to the next guided sentence, played fast; the sentence."""
        before = self.data("stop")
        self.press("n")
        self.until("the next stop", lambda: self.data("stop") != before and self.data("playing") == "false")
        return self.text(".le-guide-words")

    def click(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()
        self.carry()

    def dress(self, theme: str) -> None:
        style = {name: THEMES[theme].get(name, "") for name in THEMES["dark"]}
        script = (
            "(style) => { for (const [k, v] of Object.entries(style)) document.body.style.setProperty(k, v);"
            "document.body.style.background = 'var(--jp-layout-color1, white)'; }"
        )
        self.page.evaluate(script, style)
        self.page.wait_for_timeout(300)

    def picture(self, name: str, theme: str = "light") -> None:
        """A screenshot to look at, in .artifacts/compare."""
        if ARE_KEPT:
            self.dress(theme)
            keep(self.page.locator(".labengine"), PICTURES / f"{name}-{theme}.png")
            self.dress("light")


def texts_of_bytes(parts: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(part).decode() for part in parts]


def numbers(page: ComparePage) -> list[dict[str, str]]:
    """Used, peak, findable, lost and computed of either side, as shown above the columns."""
    names = ("used", "peak", "findable", "lost", "computed")
    heads = page.page.locator(".le-column-head").all()
    return [dict(zip(names, head.locator(":not([hidden]) > b").all_text_contents(), strict=True)) for head in heads]


def show_comparison(
    check: Callable[[ComparePage], None], comparison: Comparison, *, width: int = 1220, has_kernel: bool = True
) -> None:
    """Run a check on a comparison's view, and close the comparison; it must leave no error in the page."""

    def run(pages: BarePages) -> None:
        with comparison, pages.lent(1300, 1200) as bare:
            check(ComparePage(bare, comparison, width, has_kernel=has_kernel))

    BROWSER.run(run)
