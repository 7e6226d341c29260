"""What each test costs in processor seconds, its fixtures and child processes included: `pytest --costs FILE`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest


class Costs:
    """Measures the tests of a process; with xdist, the controller gathers what its workers report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.by_test: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what a test has cost on its last report."""
        self._before = _seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: pytest.TestReport = yield
        if report.when == "teardown":
            report.user_properties.append(("cpu_s", round(_seconds() - self._before, 3)))
        return report  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's cost from its last report."""
        if report.when == "teardown":
            self.by_test[report.nodeid] = dict(report.user_properties)["cpu_s"]  # type: ignore[assignment]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the costs, the dearest first; on the controller alone."""
        if not hasattr(session.config, "workerinput"):
            dearest_first = sorted(self.by_test.items(), key=lambda row: -row[1])
            self.path.write_text(json.dumps(dict(dearest_first), indent=0), encoding="utf-8")


def _seconds() -> float:
    """Return the processor time of this process, of its children that have ended, and of those that live."""
    ours = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            ours += sum(child.cpu_times()[:4])
    return ours
