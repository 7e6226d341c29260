"""Text of prompts, models and files stays text: in every view, in tooltips, beside another, and in exported pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import labengine
from browser.chromium import new_context
from browser.exported_page import ExportedPage, opened
from browser.screenshots import keep
from hidden_texts import HIDING
from labengine import events as ev
from labengine.session.compare.comparison import Comparison
from labengine_widgets.pages.export import export_html
from labengine_widgets.pages.html_page import page as page_of
from labengine_widgets.pages.whole_recording import recording_payload
from widgets.fake_view_source import FakeViewSource
from widgets.story_219 import PROMPT, begin, overwriting_step

pytestmark = pytest.mark.browser

VIEWS = ("pool", "tables", "map", "queue", "tier", "step", "timeline", "log", "why")
VIEWS += ("charts",)
HOSTILE = (
    "</script><script>window.pwned=1</script>",
    "<img src=data:, onerror=window.pwned=2>",
    "\"'><svg onload=window.pwned=3>",
    "</title></style></noscript><b onmouseover=window.pwned=4>",
    "\u202edlrow\u202c\u2066olleh" + HIDING,
    "a\u2028b\u2029c\x00\x1b[31m\r\n",
    "${window.pwned=5}{{pwned}}<!--",
    "\ud800]]>&lt;&#x3c;\ue0003\ue001",
)
NAMES = (HOSTILE[1] + HOSTILE[4], HOSTILE[2])
MARKUP = "img, svg[onload], b[onmouseover], .labengine script, [onerror], [onclick]"
HIDDEN = r"""
() => {
  const hidden = /[^\P{Cc}\n\t]|[\p{Cf}\p{Co}\p{Zl}\p{Zp}\p{DI}\u2800]|[^\P{Zs} ]/u, found = [];
  const look = (text) => { if (hidden.test(text)) found.push(text); };
  const walk = document.createTreeWalker(document.querySelector(".labengine"), NodeFilter.SHOW_ALL);
  while (walk.nextNode()) {
    look(walk.currentNode.data ?? "");
    for (const { name, value } of walk.currentNode.attributes ?? []) if (/title|^aria-/.test(name)) look(value);
  }
  return found;
}
"""


class HostileViewSource(FakeViewSource):
    """Every text that can come from outside is hostile: titles, editions, tokens, reasons, messages, code."""

    def __init__(self) -> None:
        edition, *others = begin()
        assert isinstance(edition, ev.EngineStarted)
        violation = ev.ViolationFound(HOSTILE[0], HOSTILE[1] + HOSTILE[4], (0,), (1,), 1, 3)
        aborted = ev.RequestFinished(1, HOSTILE[2])
        super().__init__(
            [ev.EngineStarted(12, edition.groups, HOSTILE[0]), *others, *overwriting_step(), violation, aborted]
        )
        self.title = " ".join(HOSTILE)
        self.words = {token: HOSTILE[i % len(HOSTILE)] for i, token in enumerate((*PROMPT, 7))}

    def seams(self) -> dict[str, Any]:
        code = {"class": HOSTILE[1], "source": "\n".join(HOSTILE), "reason": HOSTILE[0], "seam": HOSTILE[2]}
        source = code | {"module": HOSTILE[3], "line": 1, "base": code, "is_custom": True, "methods": []}
        return {kind.__name__: source for kind in ev.EVENT_KINDS}


def must_be_text(page: ExportedPage) -> None:
    """Nothing of it has run, become an element, or turned the direction of the text beside it."""
    assert page.page.evaluate("() => window.pwned") is None
    assert page.page.locator(f".labengine :is({MARKUP})").count() == 0
    assert page.page.evaluate(HIDDEN) == []


def go_through(page: ExportedPage) -> None:
    """Every moment by key, and a look at whatever has a tooltip."""
    page.page.locator(".labengine").focus()
    page.press("End", *["ArrowLeft"] * 6, "End")
    subjects = page.page.locator(":is([data-block], [data-hash], [data-event], [data-request]):visible")
    for i in range(min(subjects.count(), 6)):
        subjects.nth(i).hover(force=True)
        must_be_text(page)


@pytest.fixture(scope="module")
def view_source() -> HostileViewSource:
    return HostileViewSource()


@pytest.mark.parametrize("view", VIEWS)
def test_in_a_view(browser: Browser, view_source: HostileViewSource, tmp_path: Path, view: str) -> None:
    path = tmp_path / "view.html"
    shown = page_of(view_source.title, {"kind": "view", "views": [view]}, [recording_payload(view_source)], "")
    path.write_bytes(shown.encode("utf-8", "replace"))
    with opened(browser, path) as page:
        assert page.page.locator(f".le-{view}-panel").count() == 1
        go_through(page)
        must_be_text(page)
        if view in ("tables", "log", "step"):
            expect(page.page.locator(f".le-{view}-panel")).to_contain_text("window.pwned", use_inner_text=True)


def test_in_the_dashboard_and_the_pages_own_words(
    browser: Browser, view_source: HostileViewSource, tmp_path: Path, artifacts: Path
) -> None:
    path = export_html(view_source, tmp_path / "hostile.html", HOSTILE[3] + HOSTILE[4] + HOSTILE[0])
    with opened(browser, path) as page:
        go_through(page)
        for tab in page.page.get_by_role("tab").all():
            tab.click()
            must_be_text(page)
        assert page.page.title().startswith("</title></style>") and "\u202e" not in page.page.title()
        assert page.page.locator("h1").inner_text().startswith("</title></style>")
        keep(page.page, artifacts / "hostile-dashboard.png")


def test_in_an_answer(browser: Browser, view_source: HostileViewSource, tmp_path: Path) -> None:
    path = export_html(view_source, tmp_path / "hostile.html")
    with opened(browser, path) as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        page.page.get_by_role("tab", name="Why?", exact=True).click()
        page.page.get_by_role("button", name="Why did the last event happen?").click()
        assert "svg onload" in page.page.locator(".le-why").inner_text()
        must_be_text(page)


def test_without_scripts(browser: Browser, view_source: HostileViewSource, tmp_path: Path) -> None:
    path = export_html(view_source, tmp_path / "hostile.html", HOSTILE[3])
    with new_context(browser, java_script_enabled=False, offline=True) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.locator(f":is({MARKUP})").count() == 0
        assert page.locator("svg[role=img]").count() == 1


@pytest.fixture
def compared(tmp_path: Path) -> Iterator[Path]:
    """Two sides whose names, title and prompt are hostile, as a page."""
    with labengine.compare(
        *("nano-vllm", "nano-vllm+243"), num_blocks=12, block_size=4, title=HOSTILE[0] + HOSTILE[4], names=NAMES
    ) as comparison:
        _fill(comparison)
        yield comparison.export_html(tmp_path / "pair.html")


def _fill(comparison: Comparison) -> None:
    for _ in range(2):
        comparison.add(" ".join(HOSTILE[:5]), max_tokens=2)
    comparison.step()


def test_in_the_compare_view(browser: Browser, compared: Path) -> None:
    with opened(browser, compared) as page:
        assert page.page.locator(".le-compare-title").inner_text().startswith("</script><script>window.pwned=1")
        go_through(page)
        for tab in page.page.get_by_role("tab").all():
            tab.click()
            must_be_text(page)
        page.page.locator(".le-tables-fold").first.click()
        expect(page.page.locator(".le-tables").first).to_contain_text("onerror", use_inner_text=True)
