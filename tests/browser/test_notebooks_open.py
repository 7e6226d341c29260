"""Notebooks 02 and 05 as a person meets them: what the cells say, the pictures show."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator

from browser.lab_page import LabPage

FOLDER = Path(__file__).parents[2] / "notebooks"
THEMES = pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])


def cell_with(lab: LabPage, beginning: str) -> int:
    """The number of the first cell whose text begins so."""
    return next(i for i, text in enumerate(lab.sources()) if text.startswith(beginning))


def run_to(lab: LabPage, beginning: str, start: int = 0) -> int:
    """Run the cells from `start` to the one that begins so; its number."""
    last = cell_with(lab, beginning)
    for cell in range(start, last + 1):
        lab.run_cell(cell)
    assert lab.errors() == []
    return last


def seen(lab: LabPage, view: Locator, name: str, value: str) -> None:
    """Bring a view into sight (out of sight nothing is painted) and wait until it stands so."""
    view.scroll_into_view_if_needed()
    lab.wait_for(f"{name} {value}", lambda: view.get_attribute(f"data-{name}") == value, timeout=30)


@THEMES
def test_05_the_picture_follows_the_cells(lab_page: LabPage, theme: str) -> None:
    shade = theme.split()[-1].lower()
    lab_page.open(FOLDER / "05_ask_why.ipynb")
    lab_page.set_theme(theme)  # type: ignore[arg-type]
    at = run_to(lab_page, "lab.show()")
    view = lab_page.cell(at).locator(".labengine-dashboard")
    seen(lab_page, view, "step", "7")
    lab_page.screenshot(f"05-end-{shade}", view)
    at = run_to(lab_page, "lab.goto(2)", at + 1)
    seen(lab_page, view, "step", "2")
    at = run_to(lab_page, "lab.selection", at + 1)
    seen(lab_page, view, "step", "2")
    lab_page.screenshot(f"05-chosen-{shade}", view)
    lab_page.screenshot(f"05-answer-{shade}")
    at = run_to(lab_page, "answer = ", at + 1) if False else run_to(lab_page, "lab.moment = None", at + 1)
    lab_page.cell(at).scroll_into_view_if_needed()
    lab_page.screenshot(f"05-why-{shade}")
    at = run_to(lab_page, "with lab.break_on", at + 1)
    seen(lab_page, view, "step", "3")
    lab_page.screenshot(f"05-stopped-{shade}", view)
    at = run_to(lab_page, "both.show()", at + 1)
    both = lab_page.cell(at).locator(".le-compare")
    both.scroll_into_view_if_needed()
    lab_page.wait_for("the compare view", lambda: both.get_attribute("data-position"), timeout=30)
    lab_page.screenshot(f"05-both-{shade}", both)
    both.press("End")
    lab_page.page.wait_for_timeout(800)
    lab_page.screenshot(f"05-both-end-{shade}", both)
    at = run_to(lab_page, "difference = ", at + 1)
    lab_page.cell(at).scroll_into_view_if_needed()
    lab_page.screenshot(f"05-difference-{shade}")
    at = run_to(lab_page, "trace.view(", at + 1)
    lab_page.cell(at).scroll_into_view_if_needed()
    lab_page.page.wait_for_timeout(500)
    lab_page.screenshot(f"05-trace-{shade}")
    at = run_to(lab_page, "page = ", at + 1)
    lab_page.screenshot(f"05-page-{shade}")


@THEMES
def test_02_opens_both_engines(lab_page: LabPage, theme: str) -> None:
    shade = theme.split()[-1].lower()
    lab_page.open(FOLDER / "02_late_merge.ipynb")
    lab_page.set_theme(theme)  # type: ignore[arg-type]
    at = run_to(lab_page, "comparison = ")
    view = lab_page.cell(at).locator(".le-compare")
    seen(lab_page, view, "stop", "0")
    lab_page.screenshot(f"02-begin-{shade}", view)
    lab_page.screenshot(f"02-begin-page-{shade}")
    for stop in range(1, 6):
        view.press("n")
        lab_page.page.wait_for_timeout(700)
        lab_page.screenshot(f"02-n{stop}-{shade}", view)
    run_to(lab_page, "comparison.left.why", at + 1)
    lab_page.screenshot(f"02-why-{shade}")
    lab_page.page.wait_for_timeout(1500)
    view.scroll_into_view_if_needed()
    lab_page.page.wait_for_timeout(500)
    lab_page.screenshot(f"02-later-{shade}", view)
