"""The views in JupyterLab, on the real model: in the dashboard with each tab of its drawer, and side by side."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.lab_page import LabPage
from browser.open_view import OpenView, shown
from browser.screenshots import ARE_KEPT

PROMPT = "Once upon a time, in a small house by the sea,"
MAKE = f"""
lab = labengine.Lab("smollm2", num_blocks=32, block_size=4)
for _ in range(2):
    lab.add({PROMPT!r}, max_tokens=8)
lab.step(3)
"""
WORDS = {
    "pool": "",
    "tables": "running",
    "map": "3 hashes",
    "queue": "B's copy, merged",
    "step": "its query reads 15",
    "timeline": "prefill",
    "log": "B's next token, at position",
    "why": "Why did the last event happen?",
    "charts": "Blocks in use",
}
"""What each view says after step 3; the pool speaks through its canvas and its label."""

DRAWN = ("pool", "timeline", "charts")
"""Views on a canvas."""

TABS = {
    "Timeline": "timeline",
    "Step": "step",
    "Log": "log",
    "Why?": "why",
    "Charts": "charts",
}
CUT_OFF = """(root) => [root.scrollWidth - root.clientWidth, root.scrollHeight - root.clientHeight]"""


@pytest.fixture(scope="module")
def lab(notebook: LabPage) -> LabPage:
    """A notebook in which the real model has taken three steps with two equal prompts."""
    notebook.execute(MAKE)
    assert notebook.errors() == []
    return notebook


@pytest.fixture(scope="module")
def dashboard(lab: LabPage) -> OpenView:
    """The dashboard at the newest moment."""
    view = shown(lab, "lab.show()")
    view.press("End")
    view.until("step", "3")
    return view


def says(view: OpenView, name: str, within: str) -> None:
    """The view is there and has something to say, not only a frame."""
    part = view.root.locator(within).first
    view.notebook.wait_for(f"the words of {name}", lambda: WORDS[name] in part.inner_text())
    if name in DRAWN:
        view.notebook.wait_for(f"colours in {name}", lambda: view.shades(f"{within} canvas") > 4)
    if name == "pool":
        label = view.root.locator("canvas.le-pool").get_attribute("aria-label")
        assert label == "Block pool: 5 of 32 blocks used, 0 lost."


def fits(view: OpenView) -> None:
    """Nothing of it is cut off, once what has a new size is painted."""
    view.notebook.wait_for("nothing cut off", lambda: view.root.evaluate(CUT_OFF) == [0, 0])


def test_the_drawer_opens_each_tab(dashboard: OpenView) -> None:
    for tab, name in TABS.items():
        dashboard.open_tab(tab)
        says(dashboard, name, ".le-drawer")
        fits(dashboard)


@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_dashboard_shows_all_else_at_once(dashboard: OpenView, theme: str) -> None:
    dashboard.notebook.set_theme(f"JupyterLab {theme}")  # type: ignore[arg-type]
    dashboard.open_tab("Step")
    for name in ("pool", "tables", "map", "queue"):
        says(dashboard, name, f".le-{name}-panel")
    dashboard.root.locator(".le-tables-fold").first.click()
    tables = dashboard.root.locator(".le-tables-panel")
    for word in ("Once", "sea"):  # tokens are readable, as soon as the rows have unfolded
        expect(tables).to_contain_text(word, use_inner_text=True)
    assert not dashboard.root.locator(".le-tier-panel").is_visible(), "without an external tier it takes no room"
    dashboard.root.locator(".le-tables-fold").first.click()
    if ARE_KEPT:
        dashboard.page.wait_for_timeout(900)  # the theme's last style sheet
    dashboard.screenshot(f"views-dashboard-{theme.lower()}")
    dashboard.notebook.set_theme("JupyterLab Light")


def test_several_views_beside_each_other_stay_in_step(lab: LabPage, dashboard: OpenView) -> None:
    view = shown(lab, "lab.view('pool', 'tables', 'queue')")
    view.until("step", "3")
    tops = view.root.locator(".le-panel").evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().y)")
    assert len(tops) == 3 and len(set(tops)) == 1
    lab.execute("lab.step()")
    view.until("step", "4")
    dashboard.root.scroll_into_view_if_needed()
    dashboard.until("step", "4")
