"""The browser's model in a bare page of Chromium: its modules and the tests' own, on `window.model`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from browser.bare_pages import BROWSER, BarePages
from labengine_widgets.browser import esm

_LOAD = """
async (sources) => {
  const load = (source) => import("data:text/javascript;base64," + source);
  const [{ internals }, checks] = await Promise.all(sources.map(load));
  window.model = Object.assign({}, internals, checks);
}
"""


class ModelPage:
    """A page in which `model.Recording` and everything of model_check.js can be used."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """Return the value of a script in the page."""
        return BROWSER.run(lambda _: self._page.evaluate(script, argument))


@contextmanager
def model_page() -> Iterator[ModelPage]:
    """A page with the browser's model, for the tests of a module."""
    lent = ExitStack()
    try:
        yield ModelPage(BROWSER.run(_opened, lent))
    finally:
        BROWSER.run(lambda _: lent.close())


def _opened(pages: BarePages, lent: ExitStack) -> Page:
    page = lent.enter_context(pages.lent(1280, 720)).page
    page.set_content("<body></body>")
    checks = Path(__file__).with_name("model_check.js").read_text(encoding="utf-8")
    page.evaluate(_LOAD, [base64.b64encode(source.encode()).decode() for source in (esm(), checks)])
    return page
