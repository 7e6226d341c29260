"""The course in JupyterLite, from a local static server, with every other host refused: Python runs in the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from browser.chromium import new_context
from browser.page_watch import PageWatch
from browser.static_server import served
from labengine.scenarios import bug
from tools.site import lite, live_page, real_model
from tools.site.lite_notebooks import NOTEBOOKS

pytestmark = pytest.mark.sweep


NAMES = [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))]
WITH_MODEL = [name for name in NAMES if name[:2] in {"00", "02", "03", "04", "06", "14"}]
"""Notebooks that compute with SmolLM2 in the page; 01 is the one that fetches it."""

IS_READY = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
OUTPUTS = """() => jupyterapp.shell.currentWidget.content.widgets
  .filter((cell) => cell.model.type === "code" && cell.model.sharedModel.source.trim())
  .map((cell) => ({ id: cell.model.id, count: cell.model.executionCount, outputs: cell.model.outputs.toJSON() }))"""

NEEDING = """() => jupyterapp.shell.currentWidget.content.widgets
  .filter(({ model }) => model.type === "code" && model.sharedModel.source.startsWith("%%needs "))
  .map(({ model }) => model.id)"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of JupyterLite in a site with one scenario and the real model, which is fetched once: 200 MB."""
    site = tmp_path_factory.mktemp("site") / "site"
    live_page.build(site, [bug("nano-vllm-219")], real_model.write)
    lite.build(site)
    with served(site) as address:
        yield f"{address}lite/"


@contextmanager
def opened(browser: Browser, address: str, name: str) -> Iterator[Page]:
    """A notebook in a separate profile, its kernel ready; at the end the page has asked only the server."""
    with (
        new_context(browser, viewport={"width": 1280, "height": 1000}) as context,
        opened_in(context, address, name) as page,
    ):
        yield page


@contextmanager
def opened_in(context: BrowserContext, address: str, name: str) -> Iterator[Page]:
    """The same in a profile that may have the weights.

    JupyterLab looks for a picture beside the page first, and then beside the notebook: that is not a complaint.
    """
    page = context.new_page()
    watch = PageWatch(page, address)
    page.goto(f"{address}notebooks/index.html?path={name}.ipynb")
    page.wait_for_function(IS_READY)
    yield page
    assert [one for one in watch.complaints() if "/notebooks/pictures/" not in one] == []
    page.close()


def run_all(page: Page) -> list[dict[str, Any]]:
    """Run all cells; return the id, number and outputs of each code cell."""
    page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    cells: list[dict[str, Any]] = page.evaluate(OUTPUTS)
    return cells


def errors(cells: list[dict[str, Any]]) -> list[str]:
    outputs = [(cell["id"], output) for cell in cells for output in cell["outputs"]]
    return [f"{name}: {output['evalue']}" for name, output in outputs if output["output_type"] == "error"]


def printed(cells: list[dict[str, Any]], name: str) -> str:
    """What the cell of an id has printed and displayed, as one text."""
    [outputs] = [cell["outputs"] for cell in cells if cell["id"] == name]
    return str(outputs)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_to_its_end(name: str, browser: Browser, address: str) -> None:
    with opened(browser, address, name) as page:
        needing = page.evaluate(NEEDING)
        cells = run_all(page)
        assert errors(cells) == []
        assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
        for one in needing:
            assert "This cell needs " in printed(cells, one) and "no output of this code" not in printed(cells, one)


def test_the_real_model_is_fetched_by_a_click_and_then_all_notebooks_have_it(browser: Browser, address: str) -> None:
    with new_context(browser, viewport={"width": 1280, "height": 1000}) as context:
        with opened_in(context, address, "01_first_light") as page:
            assert "computed 1 tokens of C's" in printed(run_all(page), "third"), "a word is a token"
            page.get_by_role("button", name="Download SmolLM2 (98 MB, once)").first.click()
            page.get_by_text("SmolLM2 is now in this page").first.wait_for()
            cells = run_all(page)
            assert errors(cells) == [] and "computed 2 tokens of C's" in printed(cells, "third")
        for name in WITH_MODEL:
            with opened_in(context, address, name) as page:
                cells = run_all(page)
                assert errors(cells) == []
                assert "Download SmolLM2" not in str(cells) and "SmolLM2's weights" not in str(cells)


def test_the_dashboard_follows_a_run_in_the_background(browser: Browser, address: str) -> None:
    with opened(browser, address, "01_first_light") as page:
        page.evaluate("() => { jupyterapp.shell.currentWidget.content.activeCellIndex = 5 }")
        page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-above')")
        page.evaluate("() => jupyterapp.commands.execute('notebook:run-cell')")
        dashboard = page.locator(".labengine-dashboard").first
        dashboard.get_by_role("button", name="Run", exact=True).click()
        page.locator('.labengine-dashboard[data-step="8"]').first.wait_for()


def run_cell(page: Page, source: str) -> dict[str, Any]:
    """Insert a cell at the notebook's beginning and run it; return its number and outputs."""
    page.evaluate(
        """async (source) => {
          const { content } = jupyterapp.shell.currentWidget;
          content.model.sharedModel.insertCells(0, [{ cell_type: "code", source }]);
          content.activeCellIndex = 0;
          await jupyterapp.commands.execute("notebook:run-cell");
        }""",
        source,
    )
    cell: dict[str, Any] = page.evaluate(OUTPUTS)[0]
    return cell


def test_nothing_is_installed_from_elsewhere_and_progress_stays(browser: Browser, address: str) -> None:
    with opened(browser, address, "05_late_merge") as page:
        assert "cannot install packages" in str(errors([run_cell(page, "%pip install numpy")]))
        run_cell(page, "import labengine; labengine.exercise('late-merge/num-used').hint()")
        page.reload()
        page.wait_for_function(IS_READY)
        assert "late-merge/num-used" in str(run_cell(page, "import labengine; labengine.progress()"))
