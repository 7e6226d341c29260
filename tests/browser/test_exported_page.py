"""The exported file: it opens from disk with networking off, scrubs by key and mouse, and stays small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import labengine
from browser.chromium import new_context
from browser.exported_page import ExportedPage, opened
from browser.screenshots import keep
from labengine.record.files.parsing import TraceError
from labengine.scenarios import bug
from labengine.session.compare.comparison import Comparison
from waiting import wait_until

pytestmark = pytest.mark.browser

KB = 1024
TABS = ("Timeline", "Step", "Log", "Why?", "Charts")


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    """#219 played to its end, "later" too."""
    with bug("nano-vllm-219").compare() as comparison:
        comparison.follow_up()
        yield comparison


@pytest.fixture(scope="module")
def lesson(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both sides as a page."""
    return comparison.export_html(tmp_path_factory.mktemp("lesson") / "lesson_219.html")


@pytest.fixture(scope="module")
def alone(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The left side as a page."""
    return comparison.left.export_html(tmp_path_factory.mktemp("alone") / "left.html")


def test_a_lesson_is_small_and_leads_nowhere(lesson: Path, alone: Path) -> None:
    for path in (lesson, alone):
        text = path.read_text(encoding="utf-8")
        print(f"{path.name}: {len(text) / KB:.0f} KB")
        assert len(text) < 600 * KB
        assert re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", text) == []
        assert set(re.findall(r"https?://[\w./]+", text)) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xhtml",
        }


def test_a_lab_opens_where_its_first_step_begins_below_its_title(
    browser: Browser, alone: Path, comparison: Comparison
) -> None:
    with opened(browser, alone) as page:
        assert (page.data("used"), page.data("moment")) == ("0", "3")
        heading = page.page.locator("h1")
        assert heading.is_visible() and heading.inner_text() == comparison.left.view_source().title
        page.page.locator(".labengine").focus()
        page.press("ArrowRight")
        assert page.data("step") == "1"


def test_it_scrubs_by_key(browser: Browser, alone: Path) -> None:
    with opened(browser, alone) as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        assert (page.data("used"), page.data("lost"), page.data("step")) == ("8", "3", "4")
        end = page.data("moment")
        page.press("ArrowLeft", "ArrowLeft")
        sentence = page.data("sentence")
        assert int(page.data("moment") or 0) < int(end or 0) and sentence
        page.press("End", "Home")
        assert page.data("moment") != end
        page.press("?")
        assert page.page.locator(".le-keys").is_visible()


def test_it_scrubs_by_mouse(browser: Browser, alone: Path) -> None:
    with opened(browser, alone) as page:
        steps = page.page.locator(".le-scrub input[type=range]").first
        box = steps.bounding_box()
        assert box is not None
        page.page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
        page.page.mouse.down()
        page.page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2, steps=6)
        page.page.mouse.up()
        first = page.data("step")
        page.page.mouse.click(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
        assert (first, page.data("step")) == ("0", "4") or (first, page.data("step")) == ("1", "4")


def test_every_view_works_without_python(browser: Browser, alone: Path) -> None:
    with opened(browser, alone) as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        for tab in TABS:
            page.open_tab(tab)
            shown = page.page.locator(".le-drawer-body > :not([hidden])")
            box = shown.first.bounding_box()
            assert shown.count() == 1 and box is not None and box["width"] > 300 and box["height"] > 60, tab
        page.press("Home")
        page.page.get_by_role("tab", name="Charts", exact=True).click()
        assert "decided by" in page.open_tab("Why?")


def test_why_is_answered_from_what_the_page_carries(browser: Browser, alone: Path) -> None:
    with opened(browser, alone) as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        page.open_tab("Why?")
        page.page.get_by_role("button", name=re.compile("next in the free queue")).click()
        assert page.page.locator(".le-why-question").inner_text() == "Why is #11 next to be evicted?"
        assert page.page.locator(".le-why-link").count() > 0
        moment = page.data("moment")
        page.page.locator(".le-why-link").first.click()
        assert page.data("moment") != moment
        page.page.get_by_role("button", name="Why did the last event happen?").click()
        assert "As it was" not in page.page.locator(".le-why-answer").inner_text()


def test_a_comparison_shows_its_story(browser: Browser, lesson: Path) -> None:
    with opened(browser, lesson) as page:
        assert (page.data("stop"), page.data("used")) == ("0", "0 0")
        assert page.page.locator(".le-guide-words").inner_text().startswith("Two requests with the same prompt")
        page.page.locator(".labengine").focus()
        page.press("+", "+", "n")
        page.page.wait_for_function(
            "() => { const { stop, playing } = document.querySelector('.labengine').dataset;"
            " return stop === '1' && playing === 'false'; }"
        )
        page.press("End")
        assert (page.data("used"), page.data("lost"), page.data("step")) == ("8 5", "3 0", "4 4")
        page.press("ArrowLeft", "b")
        assert "finds nothing" in (page.data("left") or "")
        for name in ("Step both", "Run", "Phase"):
            assert not page.page.get_by_role("button", name=name, exact=True).is_visible()


def test_the_lesson_that_the_readme_links_to_opens(browser: Browser, project_root: Path) -> None:
    with opened(browser, project_root / "docs" / "lesson_219.html") as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        assert (page.data("used"), page.data("lost")) == ("8 5", "3 0")


def test_the_comparisons_timeline_is_dragged(browser: Browser, lesson: Path) -> None:
    with opened(browser, lesson) as page:
        box = page.page.locator(".le-pair-time canvas").bounding_box()
        assert box is not None
        y = box["y"] + 50
        page.page.mouse.move(box["x"] + 120, y)
        page.page.mouse.down()
        page.page.mouse.move(box["x"] + box["width"] - 12, y, steps=8)
        page.page.mouse.up()
        assert page.data("position") == page.data("end") and page.data("used") == "8 5"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_systems_colours(browser: Browser, alone: Path, scheme: str, artifacts: Path) -> None:
    with opened(browser, alone, color_scheme=scheme) as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        paper = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        ink = page.page.evaluate("() => getComputedStyle(document.querySelector('.labengine')).color")
        assert (paper, ink) == {
            "light": ("rgb(255, 255, 255)", "rgb(33, 33, 33)"),
            "dark": ("rgb(17, 17, 17)", "rgb(230, 230, 230)"),
        }[scheme]
        keep(page.page, artifacts / f"exported-{scheme}.png")


def test_without_scripts_there_is_a_picture(browser: Browser, lesson: Path) -> None:
    with new_context(browser, java_script_enabled=False, offline=True) as context:
        page = context.new_page()
        page.goto(lesson.as_uri())
        assert page.locator("svg[role=img]").count() == 2
        assert page.locator("h1").is_visible() and "ref" in page.locator("pre").first.inner_text()


def test_a_link_leads_to_a_moment(browser: Browser, alone: Path) -> None:
    with opened(browser, alone) as page:
        page.page.evaluate("() => { location.hash = 'at=17'; }")
        page.page.wait_for_function("() => document.querySelector('.labengine').dataset.moment === '17'")


def test_no_other_script_may_run(browser: Browser, alone: Path) -> None:
    """The policy names the page's scripts by their hashes: one that got in otherwise is refused."""
    with opened(browser, alone) as page:
        page.page.evaluate(
            "() => { const intruder = document.createElement('script');"
            " intruder.textContent = 'window.pwned = 1'; document.body.append(intruder);"
            " const frame = document.createElement('div'); document.body.append(frame);"
            " frame.innerHTML = '<img src=data:, onerror=\"window.pwned = 2\">'; }"
        )
        refused = lambda: any("Content Security Policy" in text for text in page.watch.console_errors)  # noqa: E731
        wait_until(refused, "the policy to refuse it", between=lambda: page.page.wait_for_timeout(20))
        assert page.page.evaluate("() => window.pwned") is None
        page.watch.forget()


def test_an_opened_trace_is_exported_too(browser: Browser, comparison: Comparison, tmp_path: Path) -> None:
    comparison.right.save(tmp_path / "right.lab")
    trace = labengine.open(tmp_path / "right.lab")
    with opened(browser, trace.export_html(tmp_path / "right.html", title="The right side")) as page:
        page.page.locator(".labengine").focus()
        page.press("End")
        assert (page.data("used"), page.data("lost"), page.data("step")) == ("5", "0", "4")
        assert page.page.title() == page.page.locator("h1").inner_text() == "The right side"
        assert "computed" in (page.data("sentence") or "") or page.data("sentence")


def test_where_it_cannot_be_written_it_says_so(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be written"):
        comparison.export_html(tmp_path / "no" / "such" / "folder.html")


def test_the_page_of_a_running_lab_is_complete(browser: Browser, tmp_path: Path) -> None:
    """Though its recording drops what is old while it is exported."""
    with labengine.Lab("simulated", num_blocks=64, block_size=4, record=400) as lab:
        for seed in range(4):
            lab.add(token_ids=range(seed * 50, seed * 50 + 20), max_tokens=200)
        lab.start()
        path = lab.export_html(tmp_path / "running.html")
        lab.pause()
    with opened(browser, path) as page:
        assert page.data("running") == "false"
        ExportedPage.press(page, "End")
        assert page.data("end") == page.data("moment")
        ExportedPage.press(page, "Home")
