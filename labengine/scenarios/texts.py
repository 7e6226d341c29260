"""The texts of a scenario, as lists and pages read them; most come from its TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from labengine.scenarios.experiment import Experiment
from labengine.scenarios.report import UNKNOWN, Conclusion, Report
from labengine.scenarios.words import GuideStop


class ScenarioTexts(Experiment):
    """What a scenario says of itself."""

    id: ClassVar[str]
    """Engine and number: nano-vllm-219."""
    title: ClassVar[str]
    report: ClassVar[Report | None] = None
    """The upstream report; None for a workload of the user's own."""
    claim: ClassVar[str]
    """What the report claims, in one sentence."""
    conclusion: Conclusion = UNKNOWN
    """Whether the claim follows, and the evidence but for recorded runs, which `concluded` adds."""
    kind: ClassVar[str]
    """A key of KINDS."""
    breaks: ClassVar[str]
    """What breaks, in one line."""
    seen_by: ClassVar[tuple[str, ...]] = ()
    """The rules that the checks report in the broken column, the first reported first."""
    why_unseen: ClassVar[str] = ""
    """Why no check can see the defect, in one sentence, where `seen_by` is empty."""
    sentences: ClassVar[tuple[str, ...]]
    """The story as text, in order."""
    guide: ClassVar[tuple[GuideStop, ...]] = ()
    """The compare view's sentences, each with its event; those of the follow-up come last."""
    roles: ClassVar[tuple[str, str]] = ("the bug", "the fix")
    """Roles of the broken and the fixed column in the story, shown above the columns."""
    experiments: Mapping[str, Experiment] = {}
    """Further experiments, by name."""

    @property
    def engine(self) -> str:
        """The engine that the report is about: nano-vllm."""
        return self.id.rpartition("-")[0]

    @property
    def how_seen(self) -> str:
        """The rules that the checks report in the broken column, or why no check sees the defect: sentences."""
        if self.seen_by:
            return f"The checks report: {', '.join(self.seen_by)}."
        return f"No check sees it. {self.why_unseen}"
