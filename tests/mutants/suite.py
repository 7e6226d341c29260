"""Which test sees each mutant first, one line of JSON each; all mutants unless some are named.

    PYTHONPATH=tests:tests/support python -m mutants.suite [NAME ...]

Every mutant has processes of its own, forked from one that has imported all but labengine; a name that the table lacks
stands for the code as it is. The files that take the fewest seconds come first; none that needs a model or a browser.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import pytest

from mutants.patched import install
from mutants.table import MUTANTS, Mutant
from waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
STAGES = (
    ("tests/core", "tests/check/test_invariants.py", "tests/check/test_said.py", "tests/check/test_mutations.py"),
    ("tests/test_snapshot.py", "tests/test_simulate.py", "tests/check", "tests/engine/test_loads.py"),
    (
        "tests/differential/test_golden_vllm.py",
        "tests/differential/test_golden_nano.py",
        "tests/session/history/test_crash.py",
        "tests/engine/test_engine.py",
    ),
    ("tests/engine/test_rollback.py", "tests/engine/test_late_loads.py", "tests/engine/external", "tests/scenarios"),
)
"""Each begins where no test of the one before has failed."""

MAX_SECONDS = 1.5 * PATIENCE
"""Of one test: a change may make it endless."""
MAX_BYTES = 8 << 30


class FirstFailure:
    """A pytest plugin: the first test that fails."""

    seen_by: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.seen_by is None:
            self.seen_by = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.seen_by is None:
            self.seen_by = f"{report.nodeid} (not collected)"


def main() -> None:
    """One line per mutant: its name, the test that saw it (null for none), and how long that took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    asked, known = parser.parse_args(), {mutant.name: mutant for mutant in MUTANTS}
    os.chdir(ROOT)
    _import_what_is_not_changed()
    for name in asked.names or known:
        begun, seen_by = monotonic(), None
        for files in STAGES:
            seen_by = _in_a_fork(known.get(name), files)
            if seen_by is not None:
                break
        print(json.dumps({"name": name, "seen_by": seen_by, "seconds": round(monotonic() - begun)}), flush=True)


def _import_what_is_not_changed() -> None:
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import torch

    torch.set_num_threads(1)


def _in_a_fork(mutant: Mutant | None, files: Sequence[str]) -> str | None:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        os.write(write, (_try(mutant, files) or "").encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        seen_by = pipe.read()
    _, status = os.waitpid(child, 0)
    return seen_by or (f"the process died: {status}" if status else None)


def _try(mutant: Mutant | None, files: Sequence[str]) -> str | None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    _be_silent()
    if mutant is not None:
        install(mutant)
    failure = FirstFailure()
    alone = [
        "-p",
        "no:cacheprovider",
        "-x",
        "-q",
        "--tb=no",
        f"--timeout={MAX_SECONDS}",
        "-m",
        "not sweep and not browser",
    ]
    pytest.main([*alone, *files], plugins=[failure])
    return failure.seen_by


def _be_silent() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


if __name__ == "__main__":
    main()
