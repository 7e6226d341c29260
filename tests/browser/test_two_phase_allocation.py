"""Notebook 05 as a person meets it: the dashboard opens where it went wrong, and shows two groups, nulls and a tier."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator

from browser.frames import painted_data
from browser.lab_page import LabPage
from checkout import ROOT

NOTEBOOK = ROOT / "notebooks" / "08_two_phase_allocation.ipynb"
DOUBLED = "G's window group shares #4 and #5 with another group of G: each block is in two tables!"


def dashboard(lab: LabPage) -> Locator:
    return lab.page.locator(".labengine-dashboard").first


def sentence(lab: LabPage) -> str:
    return str(painted_data(dashboard(lab), "sentence") or "")


def press(lab: LabPage, key: str, expected: str) -> None:
    dashboard(lab).focus()
    lab.page.keyboard.press(key)
    lab.wait_for(f"a sentence with {expected!r}", lambda: expected in sentence(lab))


def texts(lab: LabPage, selector: str) -> list[str]:
    return [text.strip() for text in dashboard(lab).locator(selector).all_text_contents()]


def targets(lab: LabPage, group: int) -> list[str]:
    """Where the entries of the open request's table in a group lead."""
    groups = dashboard(lab).locator(".le-tables-row:not(.le-tables-ended) .le-tables-group")
    return re.findall(r"#\d+", " ".join(groups.nth(group).locator(".le-tables-target").all_text_contents()))


@pytest.mark.parametrize("theme", ["JupyterLab Light", pytest.param("JupyterLab Dark", marks=pytest.mark.sweep)])
def test_it_opens_where_it_went_wrong(lab_page: LabPage, theme: str) -> None:
    lab_page.open(NOTEBOOK)
    lab_page.set_theme(theme)  # type: ignore[arg-type]
    opening = next(i for i, text in enumerate(lab_page.sources()) if text.startswith("dashboard = report.open()"))
    for cell in range(opening + 1):
        lab_page.run_cell(cell)
    assert lab_page.errors() == []
    lab_page.wait_for("the first wrong event", lambda: sentence(lab_page) == DOUBLED)
    assert targets(lab_page, 0) == ["#1", "#2", "#5", "#4"]
    assert targets(lab_page, 1) == ["#4", "#5"]
    assert texts(lab_page, ".le-tables-row:not(.le-tables-ended) .le-tables-label") == ["full", "window, last 16"]
    assert dashboard(lab_page).locator(".le-tables .le-is-doubled").count() == 4
    assert dashboard(lab_page).locator(".le-tier-view [data-hash]").count() > 4
    press(lab_page, "ArrowLeft", "from the head of the free queue for the full group: #5 and #4")
    assert dashboard(lab_page).locator(".le-is-doubled").count() == 0
    press(lab_page, "ArrowRight", DOUBLED)
    lab_page.screenshot(f"two-phase-{theme.split()[-1].lower()}", dashboard(lab_page))
    for _ in range(12):
        press(lab_page, "ArrowRight", "")
    lab_page.wait_for("the load", lambda: "from the external tier into G's #5, #4, #6 and #3" in sentence(lab_page))
    lab_page.screenshot(f"two-phase-loaded-{theme.split()[-1].lower()}", dashboard(lab_page))


@pytest.mark.sweep
def test_a_table_with_nulls_reads_well(lab_page: LabPage) -> None:
    """A window that has moved on, with either way to write null."""
    source = [
        "from labengine import Lab",
        "from labengine.config import GroupSpec",
        "groups = (GroupSpec(4), GroupSpec(4, 'sliding_window', 8))",
        "labs = [Lab('simulated', num_blocks=14, groups=groups, edition=e) for e in ('labengine', 'vllm')]",
        "for lab in labs:",
        "    lab.add(token_ids=range(11), max_tokens=12)",
        "    lab.run(until=lambda lab: lab.snapshot().step == 8)",
        "labs[{}]",
    ]
    lab_page.open_cells("\n".join(source).format(0), "labs[1]")
    lab_page.run_all()
    for which in (0, 1):
        one = lab_page.page.locator(".labengine-dashboard").nth(which)
        one.scroll_into_view_if_needed()  # out of sight nothing is painted
        groups = one.locator(".le-tables-group")
        lab_page.wait_for("two groups", lambda groups=groups: groups.count() == 2)  # type: ignore[misc]
        assert groups.nth(0).locator(".le-tables-outside").count() == 0
        assert groups.nth(1).locator(".le-tables-outside").count() == 2
        lab_page.screenshot(f"nulls-{which}", one)
    tip = hover(lab_page, 1)
    lab_page.wait_for("its tooltip", lambda: "null block" in (tip.text_content() or ""))


def hover(lab: LabPage, which: int) -> Locator:
    """Point at the pool's first block; the tooltip."""
    one = lab.page.locator(".labengine-dashboard").nth(which)
    one.scroll_into_view_if_needed()
    one.locator("canvas.le-pool").hover(position={"x": 20, "y": 20})
    return one.locator(".le-tip")
