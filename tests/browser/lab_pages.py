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
TESTS_A_PAGE = 24
"""A page keeps some memory of each test."""

AT_CLOSING = ("Error: widget model not found", "Could not send widget sync message Error: Cannot send")
"""Errors that Jupyter's own widget manager logs when a notebook is closed whose widgets were closed before."""


class LabPages:
    """Lends a loaded JupyterLab. A page is closed after TESTS_A_PAGE tests, a failed test, or one that sets is_worn."""

    def __init__(self, context: BrowserContext, server: JupyterServer, artifacts: Path) -> None:
        self._context, self._server, self._artifacts = context, server, artifacts
        self._idle: LabPage | None = None
        self._num_tests = 0
        self._num_lent = 0

    @contextmanager
    def lent(self, request: pytest.FixtureRequest, *, is_new: bool = False) -> Iterator[LabPage]:
        """Lend a page without notebooks to a fixture; AssertionError if it has complaints at the end, emptied.

        The kernels end with the last page lent: a test may take one while its module holds another.
        is_new: the page has not served other tests.
        """
        num_failed = request.session.testsfailed
        lab = self._take(is_new)
        self._num_lent += 1
        try:
            yield lab
            assert not lab.watch.complaints(), lab.watch.report()
            has_failed = request.session.testsfailed > num_failed
            is_worn = lab.is_worn or has_failed or self._num_tests >= TESTS_A_PAGE
            if self._idle is None and not is_worn:
                lab.page.set_viewport_size(VIEWPORT)
                lab.empty()
                complaints = [text for text in lab.watch.complaints() if not any(map(text.__contains__, AT_CLOSING))]
                assert not complaints, "\n".join(complaints)
                lab.watch.forget()
                self._idle = lab
        finally:
            if self._idle is not lab:
                lab.page.close()
            self._num_lent -= 1
            if not self._num_lent:
                self._server.end_kernels()
                self._server.forget_user()

    def _take(self, is_new: bool) -> LabPage:
        lab, self._idle = self._idle, None
        if lab is not None and is_new:
            lab.page.close()
            lab = None
        if lab is None:
            self._num_tests = 0
            lab = LabPage(self._context.new_page(), self._server, self._artifacts)
        self._num_tests += 1
        return lab
