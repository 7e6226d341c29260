"""Notebook 01 as a person meets it: the merge is seen inside the step, and a restart is harmless."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator

from browser.lab_page import LabPage
from browser.open_view import FRAME
from browser.steady_clock import STEADY_CLOCK
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

SLOWLY = """
import time
runner, forward = lab.session.model.runner, lab.session.model.runner.forward
runner.forward = lambda plan: (time.sleep(0.1), forward(plan))[1]
"""
"""Half a minute or more to the end: it is still running when a test pauses or interrupts it."""


def dashboard(lab: LabPage, which: int = 0) -> Locator:
    return lab.page.locator(".labengine-dashboard").nth(which)


def painted(lab: LabPage, name: str, which: int = 0) -> str:
    return dashboard(lab, which).get_attribute(f"data-{name}") or ""


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


def wait_painted(lab: LabPage, name: str, value: str, which: int = 0) -> None:
    lab.wait_for(f"data-{name} = {value}", lambda: painted(lab, name, which) == value)


def test_the_notebook_runs_in_a_restarted_kernel(lab_page: LabPage) -> None:
    lab_page.open(NOTEBOOK)
    run_until(lab_page, "%lab step")
    lab_page.restart_and_run_all()
    assert lab_page.errors() == []
    pictures = (
        (".le-compare", 0, "3 0", "8 5"),
        (".labengine-dashboard", 0, "0", "0"),
        (".labengine-view", 0, "0", "5"),  # each stays at the moment that its text is about
        (".labengine-view", 1, "0", "8"),
    )
    for selector, which, lost, used in pictures:
        root = lab_page.page.locator(selector).nth(which)
        root.scroll_into_view_if_needed()  # one out of sight paints nothing
        for name, value in (("lost", lost), ("used", used)):
            what = f"{selector}: {name} {value}"
            lab_page.wait_for(what, lambda: root.get_attribute(f"data-{name}") == value)  # noqa: B023


def test_eight_blocks_are_seen_inside_the_step_and_five_after_it(lab_page: LabPage) -> None:
    lab_page.open(NOTEBOOK)
    step = run_until(lab_page, "%lab step")
    wait_painted(lab_page, "used", "0")
    dashboard(lab_page).scroll_into_view_if_needed()
    watch(lab_page)
    lab_page.page.evaluate(STEADY_CLOCK)
    lab_page.is_worn = True
    lab_page.run_cell(step)
    wait_painted(lab_page, "used", "5")
    wait_painted(lab_page, "playing", "false")

    used = [moment["used"] for moment in seen(lab_page)]
    assert max(used) == 8 and used[-1] == 5
    assert {5, 6, 7} <= set(used[used.index(8) :]), "the merges are seen one by one"
    assert len({moment["sentence"] for moment in seen(lab_page)}) > 6
    assert all(moment["lost"] == 0 for moment in seen(lab_page))
    _keep_pictures(lab_page)


def _keep_pictures(lab: LabPage) -> None:
    """Five in both themes, and, going back by keyboard, eight."""
    lab.screenshot("first-light-five-light", of=dashboard(lab))
    lab.set_theme("JupyterLab Dark")
    lab.page.wait_for_timeout(1000)
    lab.screenshot("first-light-five-dark", of=dashboard(lab))
    dashboard(lab).focus()
    for _ in range(60):
        if painted(lab, "used") == "8" and painted(lab, "phase") != "update":
            break
        lab.page.keyboard.press("ArrowLeft")
        lab.page.evaluate(FRAME)
    assert painted(lab, "used") == "8"
    lab.screenshot("first-light-eight-dark", of=dashboard(lab))
    lab.set_theme("JupyterLab Light")
    lab.page.wait_for_timeout(1000)
    lab.screenshot("first-light-eight-light", of=dashboard(lab))
    lab.page.keyboard.press("End")
    wait_painted(lab, "used", "5")
    lab.screenshot("first-light-five-light", of=dashboard(lab))


def test_the_other_edition_ends_with_three_lost_blocks(lab_page: LabPage) -> None:
    lab_page.open_cells(
        "import labengine\nlab = labengine.Lab('simulated', num_blocks=12, block_size=4, edition='nano-vllm')\nlab",
        "for _ in range(2):\n    lab.add(token_ids=list(range(14)), max_tokens=8)\nlab.step()",
    )
    lab_page.run_all()
    wait_painted(lab_page, "lost", "3")
    wait_painted(lab_page, "playing", "false")
    assert painted(lab_page, "used") == "8"
    lab_page.screenshot("first-light-lost", of=dashboard(lab_page))


def test_a_restart_is_shown_where_the_lab_was(lab_page: LabPage) -> None:
    lab_page.open_cells("import labengine\nlab = labengine.Lab('simulated', num_blocks=12, block_size=4)\nlab")
    lab_page.run_all()
    wait_painted(lab_page, "used", "0")
    lab_page.restart()
    message = dashboard(lab_page).locator(".le-message")
    lab_page.wait_for("a word on the lost kernel", lambda: "is gone: run the cell again" in message.inner_text())
    assert dashboard(lab_page).get_by_role("button", name="Step", exact=True).is_disabled()


@pytest.fixture
def running(lab_page: LabPage) -> LabPage:
    """A real lab that generates in the background, its dashboard open."""
    lab_page.open_cells(
        "%load_ext labengine",
        "%lab start --model smollm2 --blocks 128 --block-size 16",
        f"ids = [lab.add('The tide comes in, and', max_tokens=400, ignore_eos=True) for _ in range(4)]\n{SLOWLY}",
        "%lab run",
        "before = lab.stats().num_steps\nwhile lab.is_running and lab.stats().num_steps < before + 5: pass\n"
        "print(lab.is_running, lab.stats().num_steps >= before + 5)",
        "print(lab.is_running, lab.check(), lab.stats().num_sampled_tokens)",
    )
    for cell in range(4):
        lab_page.run_cell(cell)
    assert lab_page.errors() == []
    return lab_page


def test_cells_run_while_the_engine_runs_and_pause_answers(running: LabPage) -> None:
    wait_painted(running, "running", "true")
    running.run_cell(4)
    assert running.text(4) == "True True\n", "the engine stepped on while this cell ran"
    dashboard(running).get_by_role("button", name="Pause").click()
    wait_painted(running, "running", "false")
    running.run_cell(5)
    printed, step = running.text(5), painted(running, "step")
    assert printed.startswith("False [] ")
    running.run_cell(5)
    assert (running.text(5), painted(running, "step")) == (printed, step), "a paused lab takes no steps"


def test_an_interrupted_cell_leaves_lab_and_dashboard_consistent(lab_page: LabPage) -> None:
    lab_page.open_cells(
        "%load_ext labengine",
        "%lab start --model smollm2 --blocks 128 --block-size 16",
        f"ids = [lab.add('The tide comes in, and', max_tokens=300, ignore_eos=True) for _ in range(2)]\n{SLOWLY}",
        "lab.run()",
        "print(lab.check(), lab.snapshot().num_used_blocks)",
    )
    for cell in range(3):
        lab_page.run_cell(cell)
    lab_page.run_cell(3, wait=False)
    lab_page.wait_for("some steps", lambda: int(painted(lab_page, "step") or 0) > 5)
    lab_page.interrupt()
    lab_page.wait_idle()
    assert [error.partition(": ")[2].partition(":")[0] for error in lab_page.errors()] == ["KeyboardInterrupt"]
    lab_page.run_cell(4)
    checked, _, used = lab_page.text(4).strip().rpartition(" ")
    assert checked == "[]"
    wait_painted(lab_page, "used", used)
    wait_painted(lab_page, "running", "false")
