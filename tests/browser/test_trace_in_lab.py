"""A saved session in JupyterLab: every view of it, with no engine and no torch in the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage
from browser.open_view import OpenView, printed, shown
from browser.test_views_in_lab import TABS

NUM_STEPS = 600
NO_THREADS = """
import threading
start = threading.Thread.start
def refuse(thread):
    if thread.name == "labengine-feed":
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = refuse
alone = labengine.open("run.lab")
shown = alone.show()
threading.Thread.start = start
shown
"""


@pytest.fixture(scope="module")
def saved(jupyter_server: JupyterServer) -> Path:
    """Two equal prompts, then more and more of others; saved in the notebooks' folder."""
    path = jupyter_server.root_dir / "run.lab"
    with labengine.Lab("simulated", num_blocks=32, block_size=4, max_num_seqs=4) as lab:
        for _ in range(2):
            lab.add(token_ids=list(range(14)), max_tokens=8)
        first = 100
        while lab.snapshot().step < NUM_STEPS:
            if all(request.status == "finished" for request in lab.snapshot().requests.values()):
                lab.add(token_ids=list(range(first, first + 21)), max_tokens=30)
                lab.add(token_ids=list(range(14)), max_tokens=12)
                first += 50
            lab.step()
        lab.save(path)
    return path


@pytest.fixture(scope="module")
def dashboard(notebook: LabPage, saved: Path) -> OpenView:
    """The opened trace at its end."""
    view = shown(notebook, "import sys\ntrace = labengine.open('run.lab')\ntrace.show()")
    view.press("End")
    view.until("step", str(NUM_STEPS))
    return view


def test_it_opens_without_torch_and_without_controls(dashboard: OpenView) -> None:
    loaded = printed(dashboard.notebook, "[name for name in ('torch', 'numpy', 'transformers') if name in sys.modules]")
    assert loaded == "[]"
    assert not dashboard.root.get_by_role("button", name="Step", exact=True).is_visible()
    dashboard.screenshot("trace-dashboard")


def test_every_tab_has_something_to_show(dashboard: OpenView) -> None:
    for tab, name in TABS.items():
        drawer = dashboard.open_tab(tab)
        dashboard.notebook.wait_for(f"the text of {tab}", lambda drawer=drawer: len(drawer.inner_text()) > 100)  # type: ignore[misc]
        if name in ("timeline", "charts"):
            dashboard.notebook.wait_for(f"colours in {tab}", lambda: dashboard.shades(".le-drawer canvas") > 4)
    assert "without its code" not in dashboard.open_tab("Why?").inner_text()


def test_one_scrubs_to_its_first_step_and_asks_why(dashboard: OpenView) -> None:
    view = dashboard
    slider = view.root.get_by_label("the steps of the recording")
    slider.evaluate("(it) => { it.value = 1; it.dispatchEvent(new Event('input', { bubbles: true })); }")
    view.until("step", "1")
    assert (view.data("used"), view.data("peak")) == ("5", "8")
    view.click_block(0, on_count=True)
    question = view.root.locator(".le-why-question")
    view.notebook.wait_for("an answer", lambda: question.inner_text() == "Why is #0's ref count 2?")
    view.notebook.wait_for("links", lambda: view.root.locator(".le-why-link").count() == 2)
    view.notebook.execute("%load_ext labengine\ntrace.goto(300)")
    view.until("step", "300")


@pytest.mark.parametrize("names", [("pool", "tables"), ("timeline",), ("log",), ("map", "queue")])
def test_its_views_can_be_alone(dashboard: OpenView, names: tuple[str, ...]) -> None:
    view = shown(dashboard.notebook, f"trace.view{names!r}" if len(names) > 1 else f"trace.view({names[0]!r})")
    assert view.root.locator(".le-panel").count() == len(names)
    assert int(view.data("step")) >= 300


def test_the_magic_opens_one_too(dashboard: OpenView) -> None:
    notebook = dashboard.notebook
    cell = notebook.execute("%load_ext labengine\n%lab open run.lab --name again")
    assert notebook.errors() == [] and f"{NUM_STEPS} steps" in notebook.text(cell)
    assert OpenView(notebook, cell).data("step") == str(NUM_STEPS)


def test_a_python_without_threads_replays_it_too(dashboard: OpenView) -> None:
    """As in JupyterLite: the kernel's event loop answers what the views ask."""
    view = shown(dashboard.notebook, NO_THREADS)
    assert printed(dashboard.notebook, "shown.feeds[0].is_sending") == "False"
    view.press("PageUp", "PageUp")
    view.until("step", str(NUM_STEPS - 2))
    caption = f"Step {NUM_STEPS - 2} ends: "
    view.notebook.wait_for("Python's caption of an earlier step", lambda: view.data("sentence").startswith(caption))
    view.open_tab("Why?")
    view.root.get_by_role("button", name="Why did the last event happen?").click()
    view.notebook.wait_for("an answer", lambda: len(view.root.locator(".le-why-answer").inner_text()) > 20)
    view.notebook.execute("alone.selection = ('block', 3)")
    view.notebook.wait_for("the choice", lambda: view.root.locator("[data-block='3'].le-selected").count() > 0)
