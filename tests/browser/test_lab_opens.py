"""The harness proves itself: a small widget is run, clicked, seen in both themes, and survives a restart."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator

from browser.lab_page import LabPage
from browser.lab_pages import LabPages

COUNTER = '''
import anywidget
import traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    export default { render({ model, el }) {
      const button = document.createElement("button");
      const show = () => { button.textContent = `blocks used: ${model.get("value")}`; };
      button.addEventListener("click", () => { model.set("value", model.get("value") + 1); model.save_changes(); });
      model.on("change:value", show);
      show();
      el.append(button);
    } };
    """
    _css = """
    button { font: 16px var(--jp-ui-font-family); color: var(--jp-ui-font-color1); padding: 8px 16px;
             background: var(--jp-layout-color2); border: 1px solid var(--jp-border-color1); }
    """
    value = traitlets.Int(5).tag(sync=True)

counter = Counter()
counter
'''
WIDGET, AFTER = 1, 2  # the cells that show the counter and print its value


@pytest.fixture(scope="module")
def lab(lab_pages: LabPages, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A notebook with the counter, run once."""
    with lab_pages.lent(request) as lab:
        lab.open_cells("import sys; print(sys.executable)", COUNTER, "print('value', counter.value)")
        lab.run_all()
        assert lab.errors() == []
        yield lab


def button(lab: LabPage, value: int) -> Locator:
    return lab.cell(WIDGET).get_by_role("button", name=f"blocks used: {value}")


def click(lab: LabPage) -> None:
    """Show a new counter, and click on it."""
    lab.run_cell(WIDGET)
    button(lab, 5).click()
    button(lab, 6).wait_for()


def test_a_widget_runs_in_this_environment_and_hears_a_click(lab: LabPage) -> None:
    assert lab.text(0).strip() == sys.executable
    click(lab)
    lab.run_cell(AFTER)
    assert lab.text(AFTER) == "value 6\n"


def test_restarting_starts_afresh(lab: LabPage) -> None:
    click(lab)
    lab.restart_and_run_all()
    assert lab.execution_counts()[:3] == [1, 2, 3]
    assert lab.text(AFTER) == "value 5\n"
    button(lab, 5).wait_for()
    assert button(lab, 6).count() == 0

    lab.restart()
    lab.run_cell(AFTER)
    assert lab.errors() == [f"cell {AFTER}: NameError: name 'counter' is not defined"]


def test_a_running_cell_can_be_watched_and_interrupted(lab: LabPage) -> None:
    cell = lab.execute("import time\nprint('begun', flush=True)\ntime.sleep(3600)", wait=False)
    lab.wait_for("the first print", lambda: lab.text(cell) == "begun\n")
    assert lab.kernel_status() == "busy"
    lab.interrupt()
    lab.wait_idle()
    assert lab.errors()[-1] == f"cell {cell}: KeyboardInterrupt: "
    lab.remove_cells(cell)


# What the watch is there to catch, it catches.


def test_an_uncaught_error_and_a_foreign_request_are_noticed(lab_page: LabPage) -> None:
    lab_page.open_cells("1 + 1")
    lab_page.page.evaluate("() => { setTimeout(() => { throw new Error('lost block'); }); }")
    lab_page.page.evaluate("() => fetch('http://example.invalid/cdn.js').catch(() => 0)")
    watch = lab_page.watch
    has_all = lambda: watch.page_errors and watch.foreign_requests and watch.console_errors  # noqa: E731
    lab_page.wait_for("both complaints, and the console's word on the request", has_all)
    assert "lost block" in lab_page.watch.page_errors[0]
    assert lab_page.watch.foreign_requests == ["http://example.invalid/cdn.js"]
    lab_page.watch.forget()
