"""One JupyterLab and one Chromium for all browser tests; a fresh page and kernel for each test, or for a module's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext

from browser.chromium import launched, new_context
from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage


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
    with new_context(browser, viewport={"width": 1400, "height": 1000}) as context:
        yield context


@pytest.fixture(scope="module")
def notebook(browser_context: BrowserContext, jupyter_server: JupyterServer, artifacts: Path) -> Iterator[LabPage]:
    """One page and one kernel for all tests of a module: they add their cells at its end. Not beside `lab_page`."""
    page = browser_context.new_page()
    lab = LabPage(page, jupyter_server, artifacts)
    lab.open_cells("import labengine")
    lab.run_all()
    yield lab
    page.close()
    jupyter_server.end_kernels()
    jupyter_server.forget_user()
    assert lab.watch.complaints() == []


@pytest.fixture
def lab_page(browser_context: BrowserContext, jupyter_server: JupyterServer, artifacts: Path) -> Iterator[LabPage]:
    """A page of its own; at the end it must have raised nothing and asked nobody but the server."""
    page = browser_context.new_page()
    lab = LabPage(page, jupyter_server, artifacts)
    yield lab
    page.close()
    jupyter_server.end_kernels()
    jupyter_server.forget_user()
    assert lab.watch.complaints() == []
