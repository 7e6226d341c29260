"""One JupyterLab and one Chromium for all browser tests; a notebook and a kernel for each test, or for a module's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext

from browser.chromium import launched, new_context
from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage
from browser.lab_pages import VIEWPORT, LabPages


@pytest.fixture(scope="session")
def artifacts(project_root: Path) -> Path:
    """Where screenshots go: .artifacts/, which git ignores."""
    folder = project_root / ".artifacts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def jupyter_server(jupyter_dirs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """The server; its python3 kernel is the interpreter that runs the tests."""
    server = JupyterServer(tmp_path_factory.mktemp("lab"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def browser_context(browser: Browser) -> Iterator[BrowserContext]:
    """One profile for all pages, so that JupyterLab's files are read once and cached."""
    with new_context(browser, viewport=VIEWPORT) as context:
        yield context


@pytest.fixture(scope="session")
def lab_pages(browser_context: BrowserContext, jupyter_server: JupyterServer, artifacts: Path) -> LabPages:
    """JupyterLab's pages."""
    return LabPages(browser_context, jupyter_server, artifacts)


@pytest.fixture(scope="module")
def notebook(lab_pages: LabPages, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """One notebook and one kernel for all tests of a module: they add their cells at its end, which go with them."""
    with lab_pages.lent(request) as lab:
        lab.open_cells("import labengine")
        lab.run_all()
        yield lab


@pytest.fixture
def lab_page(lab_pages: LabPages, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A page for a test's own notebooks; at the end it has no errors, and asked only this server."""
    with lab_pages.lent(request) as lab:
        yield lab


@pytest.fixture(autouse=True)
def cells_of_a_test_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the cells that a test has added to its module's notebook: each frame takes longer on a longer page.

    Those of the module's fixtures stay: pytest makes them before those of a test.
    """
    if "notebook" not in request.fixturenames:
        yield
        return
    notebook: LabPage = request.getfixturevalue("notebook")
    num_cells = len(notebook.sources())
    yield
    notebook.remove_cells(num_cells)
