"""What the tests cost stays as recorded: a new file is measured, and make test takes at most its budget."""

from __future__ import annotations

import pytest

from checkout import ROOT
from costs import LIMIT, file_of, recorded

GATE_S = 700
JOURNEY_S = 30
MOST_JOURNEYS = 20


def test_each_file_is_measured() -> None:
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    known = {file_of(name) for name in recorded()}
    new = {name for name, path in files.items() if "mark.sweep" not in path.read_text(encoding="utf-8")} - known
    assert not new, f"measure them: make costs TESTS='{' '.join(sorted(new))}'"


def test_make_test_costs_what_it_may(request: pytest.FixtureRequest) -> None:
    costs = recorded()
    journeys = [item.nodeid for item in request.session.items if item.get_closest_marker("journey")]
    taken = {name: costs.get(name, 0) for name in journeys}
    assert len(journeys) <= MOST_JOURNEYS
    assert {name for name, seconds in taken.items() if seconds > JOURNEY_S} == set()
    assert sum(taken.values()) + sum(seconds for name, seconds in costs.items() if "::" not in name) <= GATE_S


def test_what_is_cheap_runs_at_every_change() -> None:
    assert [name for name, seconds in recorded().items() if "::" in name and seconds < LIMIT] == []
