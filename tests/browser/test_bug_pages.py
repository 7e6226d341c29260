"""A scenario's page, from disk: it reads in light and dark, and its story goes on by key."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from browser.exported_page import opened
from labengine.scenarios import bug
from labengine.scenarios.gallery import write_gallery
from waiting import wait_until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one page and its list."""
    return write_gallery([bug("nano-vllm-71")], tmp_path_factory.mktemp("gallery")).parent


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_reads_from_top_to_bottom_and_its_story_goes_on_by_key(
    browser: Browser, gallery: Path, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, gallery / "nano-vllm-71.html", color_scheme=scheme) as page:
        assert page.data("stop") == "0"
        page.press("n")
        wait_until(lambda: page.data("stop") == "1")
        page.press("n")
        wait_until(lambda: page.data("stop") == "2")
        boxes = [page.page.locator(place).first.bounding_box() for place in (".bug h1", "main", ".bug ol", ".bug pre")]
        tops = [box["y"] for box in boxes if box is not None]
        assert len(tops) == 4 and tops == sorted(tops), "report, story, words, code"
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ground = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 17, 17)")
