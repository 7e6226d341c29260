"""Bare pages of one Chromium, on a separate thread: a page that has served one test serves the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from playwright.sync_api import Browser, BrowserContext

from browser.chromium import launched, new_context
from browser.widget_server import served_widget

T = TypeVar("T")

TESTS_A_PAGE = 40
"""A page keeps some memory of each test."""


class BarePage:
    """A page and the errors on it, uncaught or on the console. is_worn: it cannot serve another test."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page = context.new_page()
        self._address = address
        self.errors: list[str] = []
        self.num_tests = 0
        self.is_worn = False
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)

    def show(self, body: str) -> None:
        """Show a page of this body, with the widgets' style sheet; its scripts import the widgets from /widget.js.

        What the page before it has said at its end is forgotten: that page's test is over.
        """
        self.page.goto(f"{self._address}?{quote(body)}")
        self.errors.clear()

    def end_test(self) -> None:
        """Leave the page to the next test, which shows its own: nothing is routed, the pointer is in the corner."""
        self.page.unroute_all()
        self.page.mouse.move(0, 0)


class BarePages:
    """Lends pages of a browser."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser, self._address = browser, address
        self._idle: dict[str, tuple[BarePage, ExitStack]] = {}

    @contextmanager
    def lent(self, width: int, height: int, **options: Any) -> Iterator[BarePage]:
        """Lend a page whose context has these options; AssertionError if it ends with errors on it.

        Until the test shows its own, it has what the test before has left.
        """
        key = repr(options)
        bare, context = self._idle.pop(key, None) or self._opened(options)
        with context:
            bare.page.set_viewport_size({"width": width, "height": height})
            bare.num_tests += 1
            yield bare
            assert bare.errors == []
            if bare.num_tests < TESTS_A_PAGE and not bare.is_worn:
                bare.end_test()
                self._idle[key] = bare, context.pop_all()

    def close(self) -> None:
        """Close all pages."""
        while self._idle:
            self._idle.popitem()[1][1].close()

    def _opened(self, options: dict[str, Any]) -> tuple[BarePage, ExitStack]:
        context = ExitStack()
        return BarePage(context.enter_context(new_context(self._browser, **options)), self._address), context


class BrowserThread:
    """Runs calls on the thread of a Chromium, launched for the first of them.

    Playwright wants one thread for its calls, without an event loop; JupyterLab's tests have one on the main thread.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._stack = ExitStack()
        self._pages: BarePages | None = None

    def run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Return what call(pages, ...) returns on that thread."""
        return self._thread.submit(self._run, call, *arguments, **options).result()

    def _run(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        if self._pages is None:
            address = self._stack.enter_context(served_widget())
            self._pages = BarePages(self._stack.enter_context(launched()), address)
        return call(self._pages, *arguments, **options)

    def close(self) -> None:
        """Close the browser; a later call launches another one."""
        if self._pages is not None:
            self._thread.submit(self._close).result()

    def _close(self) -> None:
        assert self._pages is not None
        self._pages.close()
        self._stack.close()
        self._pages = None


BROWSER = BrowserThread()
