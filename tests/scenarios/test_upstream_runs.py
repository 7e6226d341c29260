"""Recorded runs of upstream's own code: a column named for that code has its figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labengine.scenarios import bug, bugs
from labengine.scenarios.report import UpstreamRun, recorded_runs
from labengine.scenarios.scenario import Scenario

WITH_RUNS = [scenario.id for scenario in bugs() if recorded_runs(scenario.id)]


def columns_of(scenario: Scenario, run: UpstreamRun) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield columns of the scenario that do what a row's code does, with the row."""
    for name, figures in run.rows.items():
        for column in scenario.columns:
            is_release = (
                name == "as it is"
                and run.version.startswith("vllm 0.32")
                and (column.edition, column.parts) == ("vllm", None)
            )
            if column.name == name or is_release:
                yield column.name, dict(figures)


def test_at_least_twelve_scenarios_were_seen_in_upstreams_own_code() -> None:
    assert len(WITH_RUNS) >= 12


@pytest.mark.parametrize("id", WITH_RUNS)
def test_a_column_has_the_figures_of_the_code_that_it_is_named_for(id: str) -> None:
    scenario = bug(id)
    for run in recorded_runs(id):
        for name, figures in columns_of(scenario, run):
            ours = scenario.measured(name)
            shared = figures.keys() & ours.keys()
            assert shared and {row: ours[row] for row in shared} == {row: figures[row] for row in shared}


def test_most_runs_have_such_a_column() -> None:
    compared = {id for id in WITH_RUNS for run in recorded_runs(id) if list(columns_of(bug(id), run))}
    assert len(compared) >= 10


@pytest.mark.parametrize("id", WITH_RUNS)
def test_a_verdict_and_its_page_name_version_part_and_figures(id: str) -> None:
    verdict = bug(id).verdict()
    assert verdict.conclusion.runs == recorded_runs(id)
    assert verdict.to_dict()["upstream_runs"] == [run.to_dict() for run in recorded_runs(id)]
    for run in verdict.conclusion.runs:
        figures = [str(number) for row in run.rows.values() for number in row.values()]
        assert all(text in verdict.conclusion.upstream for text in (run.version, run.part, run.command, *figures))
