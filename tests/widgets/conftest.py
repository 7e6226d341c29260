"""The browser of the tests in bare pages, closed after the last of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.bare_pages import BROWSER


@pytest.fixture(scope="session", autouse=True)
def browser_closes() -> Iterator[None]:
    """Close the browser, if a test has launched it."""
    yield
    BROWSER.close()
