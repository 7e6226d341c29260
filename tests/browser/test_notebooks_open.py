"""Notebooks 05 and 10, run from top to bottom in JupyterLab: the views show what the cells print."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator

from browser.frames import painted_data
from browser.lab_page import LabPage
from browser.open_view import PLAY_FAST
from browser.screenshots import ARE_KEPT
from checkout import ROOT

FOLDER = ROOT / "notebooks"


def run_to(lab: LabPage, beginning: str, start: int = 0) -> int:
    """Run the cells from `start` to the first one that begins so; its number."""
    last = next(i for i, text in enumerate(lab.sources()) if i >= start and text.startswith(beginning))
    for cell in range(start, last + 1):
        lab.run_cell(cell)
    assert lab.errors() == []
    return last


def run_to_the_end(lab: LabPage, start: int) -> None:
    """Run the cells from `start` on."""
    for cell in range(start, len(lab.sources())):
        lab.run_cell(cell)
    assert lab.errors() == []


def seen(lab: LabPage, view: Locator, **data: str) -> None:
    """Wait until a view's data attributes are these."""
    for name, value in data.items():
        lab.wait_for(f"{name} {value}", lambda n=name, v=value: painted_data(view, n) == v)  # type: ignore[misc]


def pictures(lab: LabPage, name: str, of: Locator) -> None:
    """In both themes, if pictures are kept."""
    if not ARE_KEPT:
        return
    for theme, shade in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
        lab.set_theme(theme)  # type: ignore[arg-type]
        of.scroll_into_view_if_needed()
        lab.screenshot(f"{name}-{shade}", of)


@pytest.mark.sweep
def test_10_the_picture_goes_where_the_cells_go(lab_page: LabPage) -> None:
    lab_page.open(FOLDER / "10_reading_a_run.ipynb")
    at = run_to(lab_page, "lab.show()")
    view = lab_page.cell(at).locator(".labengine-dashboard")
    seen(lab_page, view, step="7")
    at = run_to(lab_page, "lab.goto(2)", at + 1)
    seen(lab_page, view, step="2")
    at = run_to(lab_page, "lab.selection", at + 1)
    seen(lab_page, view, step="2")
    selected = view.locator(".le-queue-seat.le-selected")
    lab_page.wait_for("the chosen block in the queue", lambda: selected.get_attribute("data-block") == "1")
    assert "3" in (selected.text_content() or ""), "number 3 in the line, as the next cell says"
    lab_page.wait_for("it, in a low panel, too", lambda: is_inside(view.locator(".le-queue-view"), selected))
    pictures(lab_page, "06-chosen", view)
    at = run_to(lab_page, "with lab.break_on", at + 1)
    seen(lab_page, view, step="3")
    lab_page.wait_for("the event", lambda: "#1" in painted_data(view, "sentence"))
    at = run_to(lab_page, "both.show()", at + 1)
    both = lab_page.cell(at).locator(".le-compare")
    seen(lab_page, both, step="1 1")
    lab_page.wait_for("where they part", lambda: both.get_attribute("data-left") != both.get_attribute("data-right"))
    pictures(lab_page, "06-both", both)
    run_to_the_end(lab_page, at + 1)


@pytest.mark.sweep
def test_05_shows_both_engines_and_the_follow_up(lab_page: LabPage) -> None:
    lab_page.open(FOLDER / "05_late_merge.ipynb")
    at = run_to(lab_page, "comparison = ")
    view = lab_page.cell(at).locator(".le-compare")
    seen(lab_page, view, stop="0", used="0 0")
    view.evaluate(PLAY_FAST)
    for stop in range(1, 6):
        view.press("n")
        seen(lab_page, view, stop=str(stop), playing="false")
    seen(lab_page, view, used="8 5", lost="3 0")
    pictures(lab_page, "02-after-the-step", view)
    at = run_to(lab_page, "from labengine.events import PrefixHit", at + 1)
    after_restart = lab_page.cell(at).locator(".le-compare")
    seen(lab_page, after_restart, stop="0")
    after_restart.press("End")
    seen(lab_page, after_restart, used="8 5", step="4 4", playing="false")
    pictures(lab_page, "02-later", after_restart)
    run_to_the_end(lab_page, at + 1)
    seen(lab_page, view, used="8 5", step="1 1")  # the first picture stays where its text is


def is_inside(panel: Locator, part: Locator) -> bool:
    """Whether a part is to be seen in its panel, without scrolling it."""
    outer, inner = panel.bounding_box(), part.bounding_box()
    assert outer is not None and inner is not None
    return bool(outer["y"] <= inner["y"] and inner["y"] + inner["height"] <= outer["y"] + outer["height"])
