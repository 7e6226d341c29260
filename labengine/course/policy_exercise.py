"""Make it better: an override is scored on hidden workloads against a goal, and a table lists all runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from labengine.config import ConfigError, checked_call, shown
from labengine.core.parts import Parts
from labengine.course.alone import exact
from labengine.course.base import ExerciseText, Mistake, called
from labengine.course.blank import is_blank
from labengine.course.check_result import CheckResult, TextTable, passed, wrong
from labengine.course.override_exercise import WithOverride
from labengine.course.progress import progress
from labengine.course.progress_file import NamedScore
from labengine.course.trial import LabMaker, Workload, picture_of, played
from labengine.finder.repeats import RepeatError, refuse_difference
from labengine.lab import Lab
from labengine.record.figures import counted
from labengine.scripts import break_off

Score = Callable[[Lab], float]
Interrupt = Callable[[Lab], object]
"""Begins a step of a lab and interrupts it after its schedule."""
UndoneWorkload = Callable[[Lab, Interrupt], object]
"""A workload that calls interrupt(lab) to begin a step and undo it."""


def _hits(lab: Lab) -> float:
    assert lab.timeline is not None
    return counted(lab.timeline.events()).num_hit


def _computed(lab: Lab) -> float:
    assert lab.timeline is not None
    return counted(lab.timeline.events()).num_computed


def _peak(lab: Lab) -> float:
    return lab.stats().peak_used_blocks


def _steps(lab: Lab) -> float:
    return lab.snapshot().step


SCORES: Mapping[str, tuple[Score, bool]] = {
    "tokens found": (_hits, True),
    "tokens computed": (_computed, False),
    "peak of used blocks": (_peak, False),
    "steps": (_steps, False),
}
"""Scores by name: the function, and whether more is better."""


@dataclass(frozen=True)
class ScoredRun:
    """One scored run: the name of the override, and its score per workload."""

    name: str
    scores: tuple[float, ...]

    @property
    def total(self) -> float:
        """The sum over all workloads."""
        return sum(self.scores)


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names, numbering equal ones: a function keeps its name from run to run."""
    return [f"{name} {names[: at + 1].count(name)}" if names.count(name) > 1 else name for at, name in enumerate(names)]


class PolicyExercise(WithOverride):
    """Write a policy. score: a name of SCORES, or a function of a played lab (then less is better).

    goal: the score to reach, summed over all workloads. undone: a workload with an undone step. An answer that reaches
    the goal is also played on it, and must continue as if the step had never begun.
    """

    kind: ClassVar[str] = "Make it better"

    def __init__(
        self,
        text: ExerciseText,
        right_answer: Any,
        mistakes: Sequence[Mistake],
        workloads: Sequence[Workload],
        maker: LabMaker,
        *,
        score: str | Score,
        goal: float,
        undone: UndoneWorkload | None = None,
    ) -> None:
        super().__init__(text, right_answer, mistakes, workloads, maker)
        self.score_name = score if isinstance(score, str) else called(score).replace("_", " ")
        if isinstance(score, str):
            if score not in SCORES:
                raise ConfigError(
                    f"score must be one of {', '.join(SCORES)}, or a function of a lab, got {shown(score)}"
                )
            self._score, self._is_more_better = SCORES[score]
        else:
            checked_call("score", score, "lab")
            self._score, self._is_more_better = score, False
        if not isinstance(goal, (int, float)) or isinstance(goal, bool):
            raise ConfigError(f"goal must be a number, the score to reach, got {shown(goal)}")
        if undone is not None:
            checked_call("undone", undone, "lab", "interrupt")
        self.goal, self._undone = goal, undone
        self.runs: list[ScoredRun] = []
        """The run of the unchanged engine, then the reader's runs, oldest first."""
        self._earlier = () if (attempts := progress().get(text.name)) is None else attempts.runs
        """The reader's runs from other sessions: names and scores."""

    @property
    def how_to_answer(self) -> str:
        """The signature, the score, and the goal."""
        direction = "at least" if self._is_more_better else "at most"
        return f"{super().how_to_answer} Score: {self.score_name}, {direction} {self.goal:g} on all workloads together."

    def _judged(self, answer: Any) -> CheckResult:
        self._score_base()
        if is_blank(answer):
            return self._empty()
        parts = self._parts_with(answer)
        scored, no_return = self._scored(called(answer), parts), self._no_return(answer)
        if isinstance(scored, CheckResult):
            return replace(scored, lines=(*scored.lines, *filter(None, [no_return, self._hint_for(parts)])))
        self.runs.append(scored)
        is_reached = self._is_reached(scored)
        line = f"{self.score_name}: {scored.total:g}; to reach: {self.goal:g}; as it was: {self.runs[0].total:g}."
        if is_reached and (trace := self._trace_of_an_undone_step(parts)):
            head = f"The goal is reached, but the policy is not right yet. {line}"
            return wrong(head, *trace, self._hint_for(parts), table=self.table)
        if is_reached:
            return passed(f"Reached. {line}", table=self.table)
        hint = self._hint_for(parts) or self._unchanged(scored)
        return wrong(f"Not reached yet. {line}", no_return, hint, table=self.table)

    def _prepare(self) -> None:
        super()._prepare()
        self._score_base()

    def _memory(self) -> list[tuple[str, tuple[float, ...]]]:
        return [(exact(run.name), run.scores) for run in self.runs]

    def _remember(self, memory: list[tuple[str, tuple[float, ...]]]) -> None:
        self.runs = [ScoredRun(name, scores) for name, scores in memory]

    def _hint_for(self, parts: Parts) -> str:
        return self._fitting_hint(self._behaviour(parts)) if self.mistakes else ""

    def _unchanged(self, scored: ScoredRun) -> str:
        """Return a sentence for an override that leaves every score unchanged."""
        is_same = scored.scores == self.runs[0].scores
        text = f"Every workload has the same score as without {scored.name}: does it ever decide differently?"
        return text if is_same else ""

    def _trace_of_an_undone_step(self, parts: Parts) -> tuple[str, ...]:
        """Play a workload with and without an undone step; return sentences on the difference.

        The journal takes back the step's changes. Changes that a class makes to its own set or dict without recording
        them in the journal stay, and lead to different decisions later.
        """
        if self._undone is None:
            return ()
        found = []
        acts: dict[str, Interrupt] = {
            "Before any step is undone,": lambda lab: None,
            "After a step is undone,": lambda lab: break_off(lab, "schedule"),
        }
        for when, interrupt in acts.items():
            with played(self.maker, parts, _given(self._undone, interrupt)) as trial:
                if trial.problem:
                    return f"{when} a run fails.", trial.problem
                found.append((self._score(trial.lab), trial.lab.snapshot()))
        (without, before), (with_it, after) = found
        try:
            refuse_difference(before, after, "a run with a step that was undone")
        except RepeatError:
            return (
                f"In the middle of a run, a step is begun and undone, and its request is aborted: {self.score_name} "
                f"{with_it:g}, but {without:g} without that step. The two should be equal.",
                "So your class remembers something from a step that never happened: it changed a set, a dict or a "
                "number in that step without telling the journal how to undo it. Before each such change, record a "
                "function that undoes it: `self._journal.record((function, argument))`.",
            )
        return ()

    def _start_over(self) -> None:
        self.runs.clear()

    def _without_override(self) -> tuple[str, ...]:
        self._score_base()
        return (f"The unchanged engine scores {self.runs[0].total:g} {self.score_name}.",)

    def _newest_score(self) -> NamedScore | None:
        return (self.runs[-1].name, self.runs[-1].total) if len(self.runs) > 1 else None

    def _is_reached(self, run: ScoredRun) -> bool:
        return run.total >= self.goal if self._is_more_better else run.total <= self.goal

    def _better(self, is_passed: bool) -> Callable[[float, float], float] | None:
        """Return None for a run that reaches the goal with a policy that is not right: its score does not count."""
        if self._is_reached(self.runs[-1]) and not is_passed:
            return None
        return max if self._is_more_better else min

    @property
    def table(self) -> TextTable:
        """The runs: the score on each workload and their sum; only the sum for runs from other sessions."""
        self._score_base()
        heads = [f"workload {number}" for number in range(len(self.workloads))]
        names = numbered([run.name for run in self.runs])
        as_it_was, *rows = (
            [name, *(f"{score:g}" for score in run.scores), f"{run.total:g}"]
            for name, run in zip(names, self.runs, strict=True)
        )
        no_scores = ["" for _ in self.workloads]
        earlier = [[f"{name} (earlier)", *no_scores, f"{score:g}"] for name, score in self._earlier]
        goal = ["to reach", *no_scores, f"{self.goal:g}"]
        return TextTable([[self.score_name, *heads, "sum"], as_it_was, *earlier, *rows, goal])

    def _score_base(self) -> None:
        if not self.runs:
            scored = self._scored("as it was", self.maker.parts)
            if isinstance(scored, CheckResult):
                raise ConfigError(f"even the unchanged engine fails: {scored.text}")
            self.runs.append(scored)

    def _scored(self, name: str, parts: Parts) -> ScoredRun | CheckResult:
        """Return an engine's scores, or the reason for none: it raises, loops, breaks a rule or leaves work undone."""
        scores = []
        for number, workload in enumerate(self._sorted_workloads()):
            with played(self.maker, parts, workload) as trial:
                if not trial.problem:
                    open_ = [i for i, one in trial.lab.snapshot().requests.items() if one.status != "finished"]
                    if not open_:
                        scores.append(float(self._score(trial.lab)))
                        continue
                    problem = f"Requests {', '.join(map(str, open_))} do not finish."
                else:
                    problem = trial.problem
                picture = ("yours", picture_of(trial.lab, trial.moment))
                return wrong(f"No score: workload {number} fails.", problem, pictures=[picture])
        return ScoredRun(name, tuple(scores))


def _given(undone: UndoneWorkload, interrupt: Interrupt) -> Workload:
    return lambda lab: undone(lab, interrupt)
