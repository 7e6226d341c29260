"""The test suite sees each single wrong change of table/; see suite.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from checkout import child_environment
from mutants.table import MUTANTS


def first_failures(*names: str) -> dict[str, str | None]:
    """By name, the test that saw a mutant first."""
    command = [sys.executable, "-m", "mutants.suite", *names]
    finished = subprocess.run(command, env=child_environment(), check=True, stdout=subprocess.PIPE, text=True)
    found = map(json.loads, finished.stdout.splitlines())
    return {one["name"]: one["seen_by"] for one in found}


@pytest.mark.sweep
@pytest.mark.timeout(7200)
def test_every_change_is_seen_by_a_test_and_none_accuses_the_code_as_it_is() -> None:
    """Those that are only another policy, too: editions are compared with their upstreams step by step."""
    assert first_failures("unchanged") == {"unchanged": None}
    found = first_failures()
    for name, seen_by in found.items():
        print(f"{name}: {seen_by or 'seen by none'}")
    assert [name for name, seen_by in found.items() if seen_by is None] == []
    assert len(found) == len(MUTANTS)
