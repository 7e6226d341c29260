"""Notebook 01 as a person meets it: the merge is seen inside the step, and a restart is harmless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser.frames import FRAME, painted_data
from browser.lab_page import LabPage
from browser.lab_pages import LabPages
from browser.live_dashboard import dashboard, painted, wait_painted
from browser.screenshots import ARE_KEPT
from browser.steady_clock import REAL_CLOCK, STEADY_CLOCK
from checkout import ROOT

NOTEBOOK = ROOT / "notebooks" / "01_first_light.ipynb"
WATCH = """(root) => {
  const seen = (window.seen = []);
  const look = () => {
    const { used, lost, frame, step, sentence } = root.dataset;
    seen.push({ used: Number(used), lost: Number(lost), frame: Number(frame), step: Number(step), sentence });
  };
  const attributeFilter = ["data-frame", "data-used", "data-step"];
  new MutationObserver(look).observe(root, { attributes: true, attributeFilter });
}"""


@pytest.fixture(scope="module")
def at_first_step(lab_pages: LabPages, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """The notebook, run up to its first step."""
    with lab_pages.lent(request) as lab:
        lab.open(NOTEBOOK)
        run_until(lab, "%lab step")
        yield lab


def run_until(lab: LabPage, source: str) -> int:
    """Run the notebook's cells up to the one with this text, and return its index without running it."""
    index = next(i for i, text in enumerate(lab.sources()) if text.startswith(source))
    for i in range(index):
        lab.run_cell(i)
    assert lab.errors() == []
    return index


def watch(lab: LabPage) -> None:
    """From now on keep what each paint of the first dashboard says."""
    dashboard(lab).evaluate(WATCH)


def seen(lab: LabPage) -> list[dict[str, Any]]:
    return lab.page.evaluate("() => window.seen")


@pytest.mark.journey
def test_eight_blocks_are_seen_inside_the_step_and_five_after_it(at_first_step: LabPage) -> None:
    lab_page = at_first_step
    wait_painted(lab_page, "used", "0")
    dashboard(lab_page).scroll_into_view_if_needed()
    watch(lab_page)
    lab_page.page.evaluate(STEADY_CLOCK)
    lab_page.run_cell(lab_page.sources().index("%lab step"))
    wait_painted(lab_page, "used", "5")
    wait_painted(lab_page, "playing", "false")

    used = [moment["used"] for moment in seen(lab_page)]
    assert max(used) == 8 and used[-1] == 5
    assert {5, 6, 7} <= set(used[used.index(8) :]), "the merges are seen one by one"
    assert len({moment["sentence"] for moment in seen(lab_page)}) > 6
    assert all(moment["lost"] == 0 for moment in seen(lab_page))
    lab_page.page.evaluate(REAL_CLOCK)
    _keep_pictures(lab_page, "five")
    _go_back_to_eight(lab_page)
    _keep_pictures(lab_page, "eight")
    lab_page.page.keyboard.press("End")
    wait_painted(lab_page, "used", "5")


def _keep_pictures(lab: LabPage, name: str) -> None:
    """In both themes, if pictures are kept."""
    if not ARE_KEPT:
        return
    for theme, shade in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
        lab.set_theme(theme)  # type: ignore[arg-type]
        lab.page.wait_for_timeout(1000)
        lab.screenshot(f"first-light-{name}-{shade}", of=dashboard(lab))


def _go_back_to_eight(lab: LabPage) -> None:
    """By keyboard."""
    dashboard(lab).focus()
    for _ in range(60):
        if painted(lab, "used") == "8" and painted(lab, "phase") != "update":
            break
        lab.page.keyboard.press("ArrowLeft")
        lab.page.evaluate(FRAME)
    assert painted(lab, "used") == "8"


def test_the_notebook_runs_in_a_restarted_kernel(at_first_step: LabPage) -> None:
    lab_page = at_first_step
    lab_page.restart_and_run_all()
    assert lab_page.errors() == []
    pictures = (
        (".le-compare", 0, "3 0", "8 5"),
        (".labengine-dashboard", 0, "0", "0"),
        (".labengine-view", 2, "0", "5"),  # behind two questions; each stays at the moment that its text is about
        (".labengine-view", 3, "0", "8"),
    )
    for selector, which, lost, used in pictures:
        root = lab_page.page.locator(selector).nth(which)
        for name, value in (("lost", lost), ("used", used)):
            what = f"{selector}: {name} {value}"
            lab_page.wait_for(what, lambda: painted_data(root, name) == value)  # noqa: B023
