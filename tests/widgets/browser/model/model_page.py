"""The browser's model in a bare page of Chromium: its modules and the tests' own, on `window.model`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from browser.bare_pages import BROWSER, BarePages

_LOAD = """
async (source) => {
  const { internals } = await import("/widget.js"), checks = await import("data:text/javascript;base64," + source);
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
    bare = lent.enter_context(pages.lent(1280, 720))
    bare.show("<body></body>")
    checks = Path(__file__).with_name("model_check.js").read_bytes()
    bare.page.evaluate(_LOAD, base64.b64encode(checks).decode())
    return bare.page
