"""The browser: Debian's Chromium, or the one that $CHROMIUM names, driven by playwright."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from waiting import PATIENCE

# --host-resolver-rules: no name resolves, so that a page that needs the network fails here as it would offline.
ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def chromium_path() -> str:
    """The executable; without one the tests fail: that it works in a browser is what they are there to show."""
    headless = "/usr/bin/chromium-headless-shell"  # what `make browser` installs
    path = os.environ.get("CHROMIUM") or (headless if os.access(headless, os.X_OK) else "/usr/bin/chromium")
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(
            f"no Chromium at {path}: run `make browser`, or set CHROMIUM to the path of yours. "
            "The browser tests need one and are never skipped."
        )
    return path


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium, closed at the end; it ends with this process in any case."""
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=ARGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_context(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A fresh profile, closed at the end; all waits on its pages have the patience of tests/support/waiting.py."""
    with browser.new_context(**options) as context:
        context.set_default_timeout(PATIENCE * 1000)
        yield context
