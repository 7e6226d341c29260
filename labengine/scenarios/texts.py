"""The texts of a scenario, as lists and pages read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # listing the scenarios loads no lab
    from labengine.scenarios.experiment import Column, Experiment
    from labengine.scenarios.report import Report
    from labengine.scenarios.verdict import Table


class StorySentence(Protocol):
    """A sentence of a story."""

    @property
    def sentence(self) -> str:
        """The sentence."""


class ScenarioTexts(Protocol):
    """A scenario's texts, columns and tables; see labengine.scenarios.scenario.Scenario for each."""

    @property
    def id(self) -> str: ...
    @property
    def engine(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def report(self) -> Report | None: ...
    @property
    def claim(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def breaks(self) -> str: ...
    @property
    def seen_by(self) -> tuple[str, ...]: ...
    @property
    def why_unseen(self) -> str: ...
    @property
    def sentences(self) -> tuple[str, ...]: ...
    @property
    def guide(self) -> Sequence[StorySentence]: ...
    @property
    def roles(self) -> tuple[str, str]: ...
    @property
    def columns(self) -> tuple[Column, ...]: ...
    @property
    def experiments(self) -> Mapping[str, Experiment]: ...

    def table(self) -> Table:
        """Play every column and return the table."""


def how_seen(scenario: ScenarioTexts) -> str:
    """Return the rules that the checks report in the broken column, or why no check sees the defect: sentences."""
    if scenario.seen_by:
        return f"The checks report: {', '.join(scenario.seen_by)}."
    return f"No check sees it. {scenario.why_unseen}"
