"""The browser's model in a bare page of Chromium: its modules and the tests' own, on `window.model`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from browser.chromium import launched, new_context
from labengine_widgets.browser import esm

_LOAD = """
async (sources) => {
  const load = (source) => import("data:text/javascript;base64," + source);
  const [{ internals }, checks] = await Promise.all(sources.map(load));
  window.model = Object.assign({}, internals, checks);
}
"""


class ModelPage:
    """The page, on a thread of its own: Playwright refuses one in which somebody's event loop runs."""

    def __init__(self, thread: ThreadPoolExecutor, page: Page) -> None:
        self._thread, self._page = thread, page

    def evaluate(self, script: str, argument: Any = None) -> Any:
        """What a script comes to in the page."""
        return self._thread.submit(self._page.evaluate, script, argument).result()


@contextmanager
def model_page() -> Iterator[ModelPage]:
    """A page in which `model.Recording` and everything of model_check.js can be used."""
    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
        page = thread.submit(_opened, stack).result()
        try:
            yield ModelPage(thread, page)
        finally:
            thread.submit(stack.close).result()


def _opened(stack: ExitStack) -> Page:
    checks = Path(__file__).with_name("model_check.js").read_text(encoding="utf-8")
    browser = stack.enter_context(launched())
    page = stack.enter_context(new_context(browser)).new_page()
    page.set_content("<body></body>")
    sources = (esm(), checks)
    page.evaluate(_LOAD, [base64.b64encode(source.encode()).decode() for source in sources])
    return page
