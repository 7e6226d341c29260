"""The sliders over a workload on a bare page, without Jupyter: the test carries the widget's messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import Any

from browser.bare_pages import BROWSER, BarePage, BarePages
from browser.screenshots import ARE_KEPT, keep
from labengine.session.compare.variation import Variation
from widgets.compare.compare_page import MOUNT, PICTURES, ComparePage, texts_of_bytes


class VaryPage(ComparePage):
    """A page on which a workload's sliders are shown; has_kernel=False: as a notebook that was saved."""

    def __init__(self, bare: BarePage, variation: Variation, width: int, *, has_kernel: bool) -> None:
        self.bare, self.page, self.has_kernel = bare, bare.page, has_kernel
        widget: Any = variation.show()
        widget.outbox = deque()
        widget.send = lambda content, buffers=None: widget.outbox.append((content, list(buffers or ())))
        self.widget, self.carried = widget, []
        bare.show(f'<body data-jp-theme-light="true"><div id="cell" style="width: {width}px"></div></body>')
        self.page.evaluate(MOUNT, [texts_of_bytes(widget.saved), widget.arrangement, has_kernel, []])
        self.until("the picture", lambda: self.data("used") is not None)

    def slide(self, label: str, value: int) -> None:
        """Put a slider to a figure, as a drag does that ends there; nothing is carried yet."""
        self.page.get_by_label(label).evaluate(
            "(range, value) => { range.value = value; range.dispatchEvent(new Event('input')); }", value
        )

    def number(self, label: str) -> str:
        """What stands beside a slider."""
        return self.page.locator("label", has_text=label).locator("output").text_content() or ""

    def outcome(self, side: int = 0) -> dict[str, str]:
        """The figures of a side's newest run."""
        facts = self.page.locator(".le-outcome p").nth(side).locator("[data-fact]")
        found: dict[str, str] = facts.evaluate_all(
            "(all) => Object.fromEntries(all.map((one) => [one.dataset.fact, one.querySelector('b').textContent]))"
        )
        return found

    @property
    def message(self) -> str:
        """What is said below the sliders."""
        return self.page.locator(".le-vary-message").text_content() or ""

    def asked(self) -> list[dict[str, int]]:
        """The figures that the page has asked for, and that were not carried yet."""
        sent = self.page.evaluate("() => window.sent")
        return [message["changes"] for message in sent if message["type"] == "vary"]

    def picture(self, name: str, theme: str = "light") -> None:
        """A screenshot to look at, in .artifacts/compare."""
        if ARE_KEPT:
            self.dress(theme)
            keep(self.page.locator("#cell"), PICTURES / f"{name}-{theme}.png")
            self.dress("light")


def show_sliders(check: Callable[[VaryPage], None], of: Any, *, width: int = 1220, has_kernel: bool = True) -> None:
    """Run a check on the sliders over a lab's or a comparison's workload; it must leave no error in the page."""

    def run(pages: BarePages) -> None:
        with of, closing(Variation(of)) as variation, pages.lent(max(400, width + 40), 1200) as bare:
            check(VaryPage(bare, variation, width, has_kernel=has_kernel))

    BROWSER.run(run)
