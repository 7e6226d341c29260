"""What the checks of a default lab see of single wrong changes, in a short random workload; see table/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkout import child_environment
from mutants.table import MUTANTS

SAMPLE = (
    "touch leaves a free block queued",
    "a merge leaves the table (mini-sglang 142)",
    "an allocation is told at the wrong index",
    "a sampled token is not journalled",
    "a hit covers the last token too",
    "saves come from the neighbour's hash",
)
"""One of each kind that breaks something."""

MAX_MEGABYTES = 1000


def seen(*names: str) -> list[dict[str, Any]]:
    """What was seen of each of these mutants; names may be options, too."""
    command = [sys.executable, "-m", "mutants.live", *names]
    finished = subprocess.run(command, env=child_environment(), check=True, capture_output=True, text=True)
    return [json.loads(line) for line in finished.stdout.splitlines()]


def is_seen(found: dict[str, Any]) -> bool:
    return bool(found["rules"] or found["errors"])


def survived(found: dict[str, Any]) -> bool:
    """The process lives, its memory has not grown, and each violation leads to an event."""
    return not found.get("died") and found["megabytes"] < MAX_MEGABYTES and not found["without_first_event"]


def test_every_change_is_one_of_the_source_as_it_is(project_root: Path) -> None:
    texts = {mutant.file: (project_root / "labengine" / mutant.file).read_text() for mutant in MUTANTS}
    assert [mutant.name for mutant in MUTANTS if texts[mutant.file].count(mutant.old) != 1] == []
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


@pytest.mark.journey
def test_a_sample_is_seen_and_reported_and_an_unchanged_lab_is_not_accused() -> None:
    unchanged, *wrong = seen("--labs=16", "unchanged", *SAMPLE)
    assert not is_seen(unchanged) and survived(unchanged), unchanged
    assert [found["name"] for found in wrong if not (is_seen(found) and survived(found))] == []


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_what_breaks_state_or_stream_is_seen() -> None:
    """At least 95 of 100; the table gives the reason for each undetected mutant."""
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    found = seen(*by_name)
    breaking = [one for one in found if by_name[one["name"]].kind != "policy"]
    missed = {one["name"] for one in breaking if not is_seen(one)}
    for one in found:
        print(f"{by_name[one['name']].kind:8} {one['name']}: {', '.join(one['rules']) or one['errors'] or 'not seen'}")
    assert [one for one in found if not survived(one)] == []
    assert missed == {mutant.name for mutant in MUTANTS if mutant.missed and mutant.kind != "policy"}
    assert len(missed) <= 0.05 * len(breaking), missed
