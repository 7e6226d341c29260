"""What a notebook person expects of a widget, in JupyterLab: files, keys, themes, errors, and a clean end."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage
from browser.notebook_files import exported_by_nbconvert
from browser.open_view import OpenView, printed, shown

MAKE = """
lab = labengine.Lab("simulated", num_blocks=12, block_size=4)
for _ in range(2):
    lab.add(token_ids=list(range(14)), max_tokens=8)
lab.step()
lab.show()
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
COUNT = """
import gc, threading
from comm import get_comm_manager
known = set(threading.enumerate())  # those of labs that other tests have closed may still end
def alive(lab):
    gc.collect()
    threads = [one for one in threading.enumerate() if one.name.startswith("labengine") and one not in known]
    return len(threads), sum(map(len, lab.hooks.values()))
"""
OUTLINE = """() => {
  const focused = document.activeElement, { outlineStyle, outlineWidth } = getComputedStyle(focused);
  const name = focused.getAttribute("aria-label") || focused.title || focused.textContent;
  const isOutlined = outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  return [Boolean(focused.closest(".labengine")), name.slice(0, 60), isOutlined];
}"""
REACHABLE = (
    *("keys", "Block pool", "one moment back", "play from", "the steps", "the moments", "playback speed", "mark this"),
    *("the prompt's text", "Add the requests", "One step", "Keep stepping", "Empty the engine", "Why?"),
)
"""Some of what Tab must lead to."""

WATCH = """(root) => {
  const all = { attributes: true, subtree: true, childList: true, characterData: true };
  window.paints = 0;
  new MutationObserver((changes) => (window.paints += changes.length)).observe(root, all);
}"""
PAINTS_OF_10_MESSAGES = """async (root) => {
  const before = window.paints, { recording } = root.stage.sides[0];
  const frame = () => new Promise(requestAnimationFrame);
  for (let i = 0; i < 10; i++) for (const { end } = recording; recording.end === end; ) await frame();
  await frame();
  return window.paints - before;
}"""
COLOURS = """(root) => {
  const canvas = root.querySelector("canvas.le-pool"), { width, height } = canvas;
  const [r, g, b] = canvas.getContext("2d").getImageData(width / 8, (height * 5) / 6, 1, 1).data;
  return [getComputedStyle(root).backgroundColor, getComputedStyle(root).color, `${r},${g},${b}`];
}"""


@pytest.fixture(scope="module")
def dashboard(notebook: LabPage) -> OpenView:
    """Two equal prompts after one step."""
    view = shown(notebook, MAKE)
    view.press("End")
    view.until("used", "5")
    return view


# -- files -------------------------------------------------------------------------------------------------------------


def widgets_of(notebook: LabPage, cell: int) -> list[dict[str, Any]]:
    return [output["data"] for output in notebook.outputs(cell) if WIDGET in output.get("data", {})]


def pictures_of(notebook: LabPage, cell: int) -> list[dict[str, Any]]:
    return [output["data"] for output in notebook.outputs(cell) if "image/svg+xml" in output.get("data", {})]


def test_whoever_cannot_show_the_widget_has_a_picture_and_text(
    dashboard: OpenView, jupyter_server: JupyterServer
) -> None:
    notebook = dashboard.notebook
    notebook.execute("comparison = labengine.bug('nano-vllm-219').compare()\nlab.save('run.lab')")
    for source in (
        "lab",
        "lab.view('tables')",
        "lab.view('charts')",
        "comparison",
        "comparison.show()",
        "labengine.open('run.lab')",
        "labengine.open('run.lab').view('map')",
    ):
        cell = notebook.execute(source)
        (data,) = pictures_of(notebook, cell)
        assert len(widgets_of(notebook, cell)) == 1
        assert data["image/svg+xml"].startswith("<svg") and len(data["text/plain"]) > 60, source
    notebook.execute("comparison.close()")
    assert notebook.errors() == []
    _is_small_when_saved_and_its_html_shows_the_pictures(notebook, jupyter_server)


def _is_small_when_saved_and_its_html_shows_the_pictures(notebook: LabPage, jupyter_server: JupyterServer) -> None:
    notebook.command("docmanager:save")
    path = max(jupyter_server.root_dir.glob("*.ipynb"), key=lambda each: each.stat().st_mtime)
    saved = json.loads(path.read_text())
    shown = sum(WIDGET in output.get("data", {}) for cell in saved["cells"] for output in cell.get("outputs", []))
    assert shown >= 5 and path.stat().st_size < 20_000 * shown
    html = exported_by_nbconvert(path)
    pictures = re.findall(
        r'data-labengine-picture=.*?<img [^>]*src="data:image/svg\+xml;base64,([\w+/=]+)', html, re.DOTALL
    )
    assert len(pictures) == html.count("Run the cell to make it live.") == shown
    assert "#11" in base64.b64decode(pictures[0]).decode() and "Error displaying widget" not in html


# -- keys and looks ----------------------------------------------------------------------------------------------------


def test_tab_goes_through_everything_one_sees_where_it_is_and_it_leads_out_again(dashboard: OpenView) -> None:
    view = dashboard
    view.open_tab("Log")
    view.press("End")
    seen = []
    for _ in range(120):
        view.page.keyboard.press("Tab")
        is_inside, name, is_outlined = view.page.evaluate(OUTLINE)
        if not is_inside:
            break
        assert is_outlined, f"{name!r} has the focus, and nobody sees it"
        seen.append(name)
    else:
        pytest.fail(f"Tab never leaves the widget: {seen}")
    for wanted in REACHABLE:
        assert any(wanted in name for name in seen), f"{wanted} is out of reach: {seen}"


def test_the_question_mark_lists_the_keys_and_each_does_something(dashboard: OpenView) -> None:
    view = dashboard
    view.press("?")
    listed = view.root.locator(".le-keys dt").all_inner_texts()
    assert {"s", "p", "r", "m", "w", "?", "home", "end", "Esc", "← →"} <= set(listed)
    view.screenshot("manners-keys")
    view.press("Escape")
    assert not view.root.locator(".le-keys").is_visible()


def test_the_theme_is_followed_at_once_on_canvas_too(dashboard: OpenView) -> None:
    view, notebook = dashboard, dashboard.notebook
    view.press("End")
    light = view.root.evaluate(COLOURS)
    notebook.set_theme("JupyterLab Dark")
    is_dark = lambda: all(map(str.__ne__, light, view.root.evaluate(COLOURS)))  # noqa: E731
    notebook.wait_for("dark cells, paper and ink", is_dark)
    notebook.set_theme("JupyterLab Light")
    notebook.wait_for("light cells", lambda: view.root.evaluate(COLOURS) == light)


def test_high_contrast_keeps_every_difference(dashboard: OpenView) -> None:
    view = dashboard
    view.page.emulate_media(forced_colors="active")
    try:
        view.notebook.wait_for("forced colours", lambda: view.root.evaluate("({ stage }) => stage.theme.isForced"))
        view.press("End", "ArrowLeft", "ArrowLeft")
        view.screenshot("manners-high-contrast")
        assert view.shades("canvas.le-pool") > 4
        outline = view.root.evaluate("(root) => getComputedStyle(root, ':focus').outlineStyle")
        assert outline != "none"
    finally:
        view.page.emulate_media(forced_colors="none")


# -- many views, none in sight, and the end ----------------------------------------------------------------------------


def test_a_hidden_notebook_costs_nothing(notebook: LabPage) -> None:
    """The lab runs on while another tab is in front: nothing is painted; and back again, the newest state is there."""
    view = shown(notebook, "busy = labengine.Lab('simulated', num_blocks=9000, block_size=64)\nbusy.show()")
    notebook.execute(
        "import time\npace = busy.hooks.subscribe(lambda event: time.sleep(0.005), labengine.events.StepEnded)\n"
        "for i in range(8): busy.add(token_ids=[i] * 9, max_tokens=70_000)\nbusy.start()"
    )
    view.until("running", "true")
    view.root.evaluate(WATCH)
    notebook.wait_for("paints in sight", lambda: paints_of_10_messages(view) > 20)
    notebook.cover()
    notebook.wait_for("an end of the paints", lambda: paints_of_10_messages(view) == 0)
    while_hidden = [paints_of_10_messages(view) for _ in range(3)]
    notebook.uncover()
    assert while_hidden == [0, 0, 0]
    notebook.wait_for("paints again", lambda: paints_of_10_messages(view) > 20)
    assert printed(notebook, "busy.is_running, busy.close()") == "True None"


def paints_of_10_messages(view: OpenView) -> int:
    """How often the page changes below the root while ten messages of the lab arrive; see WATCH."""
    return int(view.root.evaluate(PAINTS_OF_10_MESSAGES))


def test_close_leaves_the_recording_and_nothing_at_work(notebook: LabPage) -> None:
    notebook.execute(COUNT + "few = labengine.Lab('simulated', num_blocks=12, block_size=4)")
    before = printed(notebook, "alive(few)")
    cells = [notebook.execute(source) for source in ("few.show()", "few.view('pool', 'log')", "few.view('charts')")]
    notebook.execute("few.add(token_ids=[1, 2, 3], max_tokens=3)\nfew.run()")
    assert printed(notebook, "alive(few)") != before
    notebook.execute("few.close()")
    notebook.wait_for("an end", lambda: printed(notebook, "alive(few)") == before)
    assert [notebook.cell(cell).locator(".labengine").count() for cell in cells[:2]] == [1, 1], "the pictures stay"
    view = OpenView(notebook, cells[0])
    view.until("step", "3")
    notebook.wait_for("no controls", lambda: not view.root.locator(".le-controls").is_visible())
    view.root.locator(".le-message", has_text="closed").wait_for()
    view.press("Home")
    view.until("step", "2")
    assert notebook.errors() == []
