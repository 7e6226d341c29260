"""find() finds all that its pages promise in time, and nothing in production. Takes an hour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from checkout import ROOT
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.finder.report import SearchReport
from labengine.scenarios import bug

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(2 * 3600)]
SCENARIOS_FOUND = 20
CHANGES_FOUND = 0.9
NUM_WORKLOADS = 1500


def lines_of(command: Sequence[str]) -> list[str]:
    """Run a script of this environment at the root, and return the lines that it prints; they are printed here too."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "widgets", "tests", "tests/support"))
    environment = {**os.environ, "PYTHONPATH": paths}
    run = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    print(run.stdout)
    return run.stdout.splitlines()


def test_scenarios_are_found_by_their_broken_parts_alone() -> None:
    table = [line.strip("|").split("|") for line in lines_of(["benchmarks/finder_scenarios.py"])[3:]]
    rows = [[cell.strip() for cell in row] for row in table if len(row) == 6]
    found = [row for row in rows if row[1] != "not found"]
    assert len(found) >= SCENARIOS_FOUND
    assert {row[1].split(" ")[0] for row in found} >= {"rule", "raises", "liveness", "worse"}
    assert [row[0] for row in found if int(row[2]) > int(row[3])] == []


def test_the_first_other_decision_is_found() -> None:
    broken, fixed = bug("nano-vllm-243").columns[:2]
    counted = {"workers": 0, "max_workloads": 400, "seconds": 3600}
    found = find(broken.all_parts, fixed.all_parts, kinds=("differs",), show_progress=False, **counted)
    print(found)
    assert isinstance(found, Counterexample) and found.kind == "differs"


def test_single_changes_of_state_and_stream_are_found() -> None:
    total = json.loads(lines_of(["-m", "mutants.searched"])[-1])
    assert total["found"] >= CHANGES_FOUND * total["of"] > 0


@pytest.mark.parametrize("edition", ["labengine", "vllm", "nano-vllm+243"])
def test_nothing_is_found_in_production(edition: str) -> None:
    report = find(edition, seconds=3600, max_workloads=NUM_WORKLOADS, kinds=GRAVE, show_progress=False)
    print(report)
    assert isinstance(report, SearchReport), report
    assert report.num_states > 0
