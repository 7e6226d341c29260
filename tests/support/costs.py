"""What each test costs in processor seconds, with its child processes, and which are too expensive for every change.

`make costs` measures, and writes `tests/costs.txt`: each test above LIMIT, and in a line per file what its others cost
together. A test above LIMIT is a sweep, unless it is one of the journeys.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from checkout import ROOT
from processor_clock import ProcessorClock

FILE = ROOT / "tests" / "costs.txt"
LIMIT = 0.5
SLOW_IMPORTS = ("torch", "transformers", "playwright.sync_api", "plotly.graph_objects", "nbclient", "labengine.lab")


class Costs:
    """Measures the tests of a process; with xdist, the controller gathers what its workers report.

    Imports are not counted, and fixtures that a file or a session shares count with the file.
    """

    def __init__(self) -> None:
        self._clock = ProcessorClock()
        self._shared_s, self._depth = 0.0, 0
        self._by_test: dict[str, float] = {}
        self._shared_by_file: dict[str, float] = {}

    def pytest_collection_finish(self) -> None:
        """Import now what the first test would wait for."""
        for name in SLOW_IMPORTS:
            import_module(name)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Note where a test begins."""
        self._began, self._shared_s = self._clock.read(), 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        """Count what a shared fixture takes, and what it asks for, only once."""
        if fixturedef.scope == "function" or self._depth:
            return (yield)
        began, self._depth = self._clock.read(), 1
        try:
            return (yield)
        finally:
            self._depth = 0
            self._shared_s += self._clock.read() - began

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Write a test's cost on its last report."""
        report: pytest.TestReport = yield  # type: ignore[misc]
        if report.when == "teardown":
            report.user_properties += [
                ("cpu_s", self._clock.read() - self._began - self._shared_s),
                ("shared_s", self._shared_s),
            ]
        return report  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's cost from its last report."""
        if report.when == "teardown":
            noted: dict[str, float] = dict(report.user_properties)  # type: ignore[arg-type]
            self._by_test[report.nodeid] = noted["cpu_s"]
            file = file_of(report.nodeid)
            self._shared_by_file[file] = self._shared_by_file.get(file, 0.0) + noted["shared_s"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Replace the lines of the files that were measured; on the controller alone."""
        if hasattr(session.config, "workerinput"):
            return
        known = {name: cost for name, cost in recorded().items() if file_of(name) not in self._shared_by_file}
        costs = known | self._shared_by_file
        for name, seconds in self._by_test.items():
            line = name if seconds > LIMIT else file_of(name)
            costs[line] = costs.get(line, 0.0) + seconds
        lines = [f"{seconds:7.2f} {name}" for name, seconds in sorted(costs.items())]
        FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def recorded() -> dict[str, float]:
    """Return what tests/costs.txt says of existing files: seconds by expensive test, or by file for all others."""
    rows = [line.split(maxsplit=1) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return {name: float(seconds) for seconds, name in rows if (ROOT / file_of(name)).exists()}


def file_of(name: str) -> str:
    """Return the file of a test."""
    return name.partition("::")[0]
