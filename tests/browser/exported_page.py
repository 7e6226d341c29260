"""An exported page opened from disk, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Dialog, Page

from browser.chromium import new_context
from browser.frames import FRAME, painted_data
from browser.page_watch import PageWatch

# The focus comes last: after all recordings, and what is said of two of them.
IS_COMPLETE = """() => {
  const root = document.querySelector(".labengine");
  return root?.dataset.used !== undefined && document.activeElement === root;
}"""


class ExportedPage:
    """The page and its text."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.dialogs: list[str] = []
        page.on("dialog", self._dismiss)
        self._urls: list[str] = []
        page.on("request", lambda request: self._urls.append(request.url))
        self.watch = PageWatch(page, "file:///")
        page.goto(path.as_uri())
        page.wait_for_function(IS_COMPLETE)
        page.evaluate(FRAME)
        self._url = path.as_uri()

    def _dismiss(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    @property
    def foreign(self) -> list[str]:
        """Whatever was asked for besides the page itself."""
        own = (self._url, "blob:", "data:")
        return [url for url in self._urls if not url.startswith(own)]

    def data(self, name: str) -> str | None:
        """A data attribute of the root, after the next paint."""
        value = painted_data(self.page.locator(".labengine"), name)
        return None if value is None else str(value)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.page.evaluate(FRAME)

    def open_tab(self, name: str) -> str:
        """Open a tab of the drawer; the text in it."""
        self.page.get_by_role("tab", name=name, exact=True).click()
        self.page.evaluate(FRAME)
        return self.page.locator(".le-drawer").first.inner_text()


@contextmanager
def opened(browser: Browser, path: Path, **options: Any) -> Iterator[ExportedPage]:
    """The page in a context that is offline; at the end it must have no errors, and have made no requests."""
    settings: dict[str, Any] = {"viewport": {"width": 1252, "height": 1000}, "offline": True, **options}
    with new_context(browser, **settings) as context:
        exported = ExportedPage(context.new_page(), path)
        yield exported
        assert exported.watch.complaints() == [] and exported.foreign == [] and exported.dialogs == []
