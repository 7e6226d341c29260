"""JupyterLab takes seconds to load: a page that has served one test serves the next, emptied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage

VIEWPORT = {"width": 1400, "height": 1000}
NOTEBOOKS_A_PAGE = 12
"""A page keeps some memory of each notebook it has shown."""


class LabPages:
    """Lends a loaded JupyterLab. A page is closed after some loans, after a failed test, or if a test has worn it."""

    def __init__(self, context: BrowserContext, server: JupyterServer, artifacts: Path) -> None:
        self._context, self._server, self._artifacts = context, server, artifacts
        self._idle: LabPage | None = None
        self._num_loans = 0

    @contextmanager
    def lent(self, request: pytest.FixtureRequest) -> Iterator[LabPage]:
        """A page without notebooks, for a fixture's request; raises AssertionError for what it complained of."""
        num_failed = request.session.testsfailed
        lab = self._take()
        yield lab
        complaints = lab.watch.complaints()
        if complaints or lab.is_worn or request.session.testsfailed > num_failed or self._num_loans >= NOTEBOOKS_A_PAGE:
            lab.page.close()
        else:
            lab.empty()
            lab.page.set_viewport_size(VIEWPORT)
            self._idle = lab
        self._server.end_kernels()
        self._server.forget_user()
        lab.watch.forget()
        assert complaints == []

    def _take(self) -> LabPage:
        lab, self._idle = self._idle, None
        if lab is None:
            self._num_loans = 0
            lab = LabPage(self._context.new_page(), self._server, self._artifacts)
        self._num_loans += 1
        return lab
