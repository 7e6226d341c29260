"""The texts of a scenario for lists and pages; most come from its TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from labengine.scenarios.experiment import Experiment
from labengine.scenarios.report import UNKNOWN, Conclusion, Report
from labengine.scenarios.words import GuideStop


class ScenarioTexts(Experiment):
    """A scenario's texts."""

    id: ClassVar[str]
    """Engine and number: nano-vllm-219."""
    title: ClassVar[str]
    report: ClassVar[Report | None] = None
    """The upstream report; None for a workload of the user's own."""
    claim: ClassVar[str]
    """The report's claim, in one sentence."""
    conclusion: Conclusion = UNKNOWN
    """The conclusion on the claim, with its evidence except recorded runs, which `concluded` adds."""
    kind: ClassVar[str]
    """A key of KINDS."""
    breaks: ClassVar[str]
    """The defect, in one line."""
    seen_by: ClassVar[tuple[str, ...]] = ()
    """The rules that the checks report in the broken column, in the order of the reports."""
    why_unseen: ClassVar[str] = ""
    """Why no check can see the defect, in one sentence, if `seen_by` is empty."""
    sentences: ClassVar[tuple[str, ...]]
    """The story as text, in order."""
    guide: ClassVar[tuple[GuideStop, ...]] = ()
    """The compare view's sentences, each with its event; the follow-up's come last."""
    roles: ClassVar[tuple[str, str]] = ("the bug", "the fix")
    """Roles of the broken and the fixed column in the story, shown above the columns."""
    experiments: Mapping[str, Experiment] = {}
    """Further experiments, by name."""

    @property
    def engine(self) -> str:
        """The report's engine: nano-vllm."""
        return self.id.rpartition("-")[0]

    @property
    def how_seen(self) -> str:
        """Sentences on the rules that the checks report in the broken column, or on why no check sees the defect."""
        if self.seen_by:
            return f"The checks report: {', '.join(self.seen_by)}."
        return f"No check sees it. {self.why_unseen}"
