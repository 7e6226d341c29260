"""The browser of the tests in bare pages, closed after the last of them, and the browser's model in one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.bare_pages import BROWSER
from widgets.browser.model.model_page import ModelPage, model_page


@pytest.fixture(scope="session", autouse=True)
def browser_closes() -> Iterator[None]:
    """Close the browser, if a test has launched it."""
    yield
    BROWSER.close()


@pytest.fixture(scope="module")
def page() -> Iterator[ModelPage]:
    """A page with the model alone."""
    with model_page() as page:
        yield page
