"""Which test sees each mutant first, one line of JSON each; all mutants unless some are named.

    PYTHONPATH=tests:tests/support python -m mutants.suite [NAME ...]

Every mutant has its own processes, forked from one that has imported all but labengine; a name that the table lacks
stands for the code as it is. The files that take the fewest seconds come first; none that needs a model or a browser.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import monotonic

import pytest

from mutants.patched import in_a_fork
from mutants.table import MUTANTS
from waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
STAGES = (
    ("tests/core", "tests/check/test_invariants.py", "tests/check/test_said.py", "tests/check/test_mutations.py"),
    ("tests/test_snapshot.py", "tests/test_simulate.py", "tests/check", "tests/engine/test_loads.py"),
    (
        "tests/differential/test_golden_vllm.py",
        "tests/differential/test_golden_nano.py",
        "tests/differential/test_golden_trees.py",
        "tests/session/history/test_crash.py",
        "tests/engine/test_engine.py",
    ),
    ("tests/engine/test_rollback.py", "tests/engine/test_late_loads.py", "tests/engine/external", "tests/scenarios"),
)
"""Each begins where no test of the one before has failed."""

MAX_SECONDS = 1.5 * PATIENCE
"""Of one test: a change may make it endless."""


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
        begun, seen_by = monotonic(), ""
        for files in STAGES:
            said = in_a_fork(known.get(name), partial(_try, files))
            if seen_by := "the process died" if said is None else said:
                break
        print(json.dumps({"name": name, "seen_by": seen_by or None, "seconds": round(monotonic() - begun)}), flush=True)


def _import_what_is_not_changed() -> None:
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import torch

    torch.set_num_threads(1)


def _try(files: Sequence[str]) -> str:
    _be_silent()
    failure = FirstFailure()
    alone = ("-p", "no:cacheprovider", "-x", "-q", "--tb=no", f"--timeout={MAX_SECONDS}")
    chosen = ("-m", "not sweep and not browser")
    pytest.main([*alone, *chosen, *files], plugins=[failure])
    return failure.seen_by or ""


def _be_silent() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


if __name__ == "__main__":
    main()
