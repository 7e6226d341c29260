"""The browser's model in a bare page of Chromium: its modules and the tests' own, on `window.model`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page

from browser.chromium import launched
from labengine_widgets.browser import bundle

_LOAD = """
async (sources) => {
  const load = (source) => import("data:text/javascript;base64," + source);
  window.model = Object.assign({}, ...(await Promise.all(sources.map(load))));
}
"""


@contextmanager
def model_page() -> Iterator[Page]:
    """A page in which `model.Recording` and everything of model_check.js can be used."""
    checks = Path(__file__).with_name("model_check.js").read_text(encoding="utf-8")
    with launched() as browser:
        page = browser.new_page()
        page.set_content("<body></body>")
        sources = (bundle("model/recording.js"), checks)
        page.evaluate(_LOAD, [base64.b64encode(source.encode()).decode() for source in sources])
        yield page
