"""The whole site as `make site` writes it: its links, and its pages in a browser with every other host refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from browser.chromium import new_context
from browser.page_watch import PageWatch
from browser.static_server import served
from tools.site import docs, lite, live_page
from tools.site.links import wrong_in

pytestmark = pytest.mark.sweep

IS_AS_HIGH_AS_ITS_RUN = """() => {
  const frame = document.querySelector("iframe.run");
  return frame.clientHeight >= frame.contentDocument.body.scrollHeight;
}"""
"""The page gives its frame another height a moment after the run in it has changed its own."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole site."""
    folder = tmp_path_factory.mktemp("whole") / "site"
    live_page.build(folder)
    docs.build(folder)
    lite.build(folder)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of its documentation."""
    with served(site) as address:
        yield f"{address}docs/"


@contextmanager
def opened(browser: Browser, address: str, width: int = 1440) -> Iterator[Page]:
    """A page in a separate profile; at the end nothing has gone wrong on it, and it has asked only the server."""
    with new_context(browser, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        watch = PageWatch(page, address)
        page.goto(address)
        yield page
        assert watch.complaints() == []


def first_run(page: Page) -> FrameLocator:
    """Bring the first recorded run into sight; frames are loaded only there."""
    page.locator("iframe.run").first.scroll_into_view_if_needed()
    return page.frame_locator("iframe.run").first


def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(site: Path) -> None:
    assert wrong_in(site) == []
    assert len(list((site / "docs").rglob("*.html"))) > 90


@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_is_wider_than_its_window(browser: Browser, address: str, site: Path, width: int) -> None:
    with opened(browser, address, width) as page:
        wide = []
        for path in sorted((site / "docs").rglob("*.html")):
            name = path.relative_to(site / "docs").as_posix()
            if name == "course/run.html" or (name.startswith("bugs/") and name != "bugs/index.html"):
                continue  # only in frames; tests/browser/test_bug_pages.py
            page.goto(address + name, wait_until="domcontentloaded")
            if page.evaluate("document.documentElement.scrollWidth > innerWidth + 1"):
                wide.append(name)
        assert wide == []


@pytest.mark.parametrize("width", [1440, 390])
def test_a_notebooks_run_scrubs_in_its_page(browser: Browser, address: str, width: int) -> None:
    with opened(browser, address + "course/05_late_merge.html", width) as page:
        frame = first_run(page)
        lab = frame.locator(".labengine[data-used]")
        expect(lab).to_have_attribute("data-used", "0 0")
        frame.get_by_role("button", name="Next").click()
        expect(lab).not_to_have_attribute("data-used", "0 0")
        page.wait_for_function(IS_AS_HIGH_AS_ITS_RUN)


def test_a_run_wears_the_pages_colours(browser: Browser, address: str) -> None:
    with opened(browser, address + "course/05_late_merge.html") as page:
        root = first_run(page).locator("html")
        expect(root).to_have_attribute("data-scheme", "light")
        page.get_by_title("Dark").click()
        expect(root).to_have_attribute("data-scheme", "dark")


def test_a_figure_is_drawn(browser: Browser, address: str) -> None:
    with opened(browser, address + "course/00_why_blocks.html") as page:
        expect(page.locator(".figure .main-svg").first).to_be_visible()


def test_search_finds_a_bug_and_its_link_opens_the_live_lab(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.locator(".md-search__input").fill("nano-vllm-219")
        page.locator(".md-search-result__link", has_text="Bugs that run").first.click()
        page.wait_for_url("**/bugs/index.html*")
        page.locator("#nano-vllm-219 .bug-live").click()
        page.wait_for_url("**/index.html?bug=nano-vllm-219")
        page.wait_for_selector('#lab[data-state="live"]')
