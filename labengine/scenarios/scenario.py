"""A scenario: an upstream report that can be run, observed and judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from operator import eq, gt, itemgetter, lt
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from labengine.config import ConfigError
from labengine.events import Event
from labengine.lab import Lab
from labengine.scenarios.bug_page import export
from labengine.scenarios.corruption import Corruption, SideBySide, corruption_of
from labengine.scenarios.experiment import Column as Column
from labengine.scenarios.experiment import Experiment as Experiment
from labengine.scenarios.experiment import settings as settings
from labengine.scenarios.kinds import KINDS as KINDS
from labengine.scenarios.report import Conclusion, recorded_runs
from labengine.scenarios.texts import ScenarioTexts
from labengine.scenarios.verdict import FirstWrong as FirstWrong
from labengine.scenarios.verdict import Table as Table
from labengine.scenarios.verdict import Verdict as Verdict
from labengine.scenarios.words import GuideStop as GuideStop
from labengine.session.compare.comparison import Comparison
from labengine.session.saved.assertion import Asserting

E = TypeVar("E", bound=Event)

_CONDITION = re.compile(r"(.+) ([<>=]) (.+)")
_SIGNS: Mapping[str, Callable[[int, int], bool]] = {"<": lt, ">": gt, "=": eq}


def sentences(guide: tuple[GuideStop, ...]) -> tuple[str, ...]:
    """Return the story's sentences."""
    return tuple(stop.sentence for stop in guide)


class Scenario(ScenarioTexts):
    """An experiment whose first column is broken and whose second is fixed; alternatives may follow.

    An override is a small subclass of a production class, with one method, in the scenario's own file: no flags, no
    patching. Further experiments on the same report are in `experiments`.
    """

    wrong_when: ClassVar[str | tuple[str, ...]]
    """Conditions on the figures that show the defect: "tokens found = 0", "tokens found < tokens stored"; any one does.

    A figure alone means that it is above 0.
    """
    wrong_event: ClassVar[GuideStop | None] = None
    """The first wrong event, unless it is the earliest that broke a rule."""
    follow_ups: ClassVar[tuple[Callable[[Lab], Any], ...]] = ()
    """The acts that `follow_up_acts` returns."""
    follow_up_question: ClassVar[str] = "What does it cost later?"

    # -- overridden where a scenario differs ---------------------------------------------------------------------------

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a column's figures show the reported defect."""
        conditions = (self.wrong_when,) if isinstance(self.wrong_when, str) else self.wrong_when
        return any(_holds(condition, measured) for condition in conditions)

    def findings(self) -> Iterator[str]:
        """Yield an answer of one or two sentences for each experiment, with this run's numbers."""
        for experiment in (self, *self.experiments.values()):
            answer = experiment.answer(experiment.table())
            if answer:
                yield answer

    def concluded(self, before: Mapping[str, int]) -> Conclusion:
        """Return the conclusion on the claim. It never follows from labengine's columns for an upstream report."""
        return replace(self.conclusion, runs=recorded_runs(self.id))

    def opening(self, lab: Lab) -> None:
        """Play the part before the compare view opens: by default everything."""
        self.play(lab)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that show the later cost, each an add or a step; empty if there is nothing more to show."""
        return self.follow_ups

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the event that made the state wrong: `wrong_event`, or the earliest that broke a rule.

        None if no event is wrong.
        """
        if (stop := self.wrong_event) is not None:
            moment = moment_of(lab, stop.kind, stop.test) if self.is_wrong(self.measure(lab)) else None
            return None if moment is None else wrong_at(lab, moment, stop.sentence)
        known = [(v.first_event, f"A check reports: {v.message}.") for v in lab.violations if v.first_event is not None]
        return wrong_at(lab, *min(known, key=itemgetter(0))) if known else None

    # -- derived -------------------------------------------------------------------------------------------------------

    def broken(self, model: str = "simulated") -> Lab:
        """Return the broken lab, played."""
        return self.played(self.columns[0].name, model)

    def fixed(self, model: str = "simulated") -> Lab:
        """Return the fixed lab, played."""
        return self.played(self.columns[1].name, model)

    def follow_up(self, lab: Lab) -> None:
        """Run the follow-up acts on a lab after its opening. Raises ConfigError if the scenario has none."""
        acts = self.follow_up_acts()
        if not acts:
            raise ConfigError(f"{self.id} has no follow-up: its comparison already shows everything")
        for act in acts:
            act(lab)

    def compare(self, model: str = "simulated", *, columns: tuple[str, str] | None = None) -> Comparison:
        """Return a comparison of the broken and the fixed lab, or of any two columns, with the story's sentences.

        Close it when done.
        """
        names = columns or (self.columns[0].name, self.columns[1].name)
        is_story = names == (self.columns[0].name, self.columns[1].name)
        with ExitStack() as opened:
            left, right = (opened.enter_context(self.lab(name, model)) for name in names)
            for lab, name in zip((left, right), names, strict=True):
                self.opening(lab)
                self.note_origin(lab, name, self.opening)
            comparison = Comparison(
                left,
                right,
                names=names,
                roles=self.roles if is_story else ("", ""),
                title=f"{self.id}  {self.title}",
                guide=self.guide if is_story else (),
                follow_ups=self.follow_up_acts(),
                follow_up_question=self.follow_up_question,
            )
            opened.pop_all()
        return comparison

    def verdict(self) -> Verdict:
        """Run everything here and judge it; `conclusion`, on upstream, does not depend on the run."""
        names = (self.columns[0].name, self.columns[1].name)
        with self.broken() as lab:
            before, first = self.measure(lab), self.first_wrong(lab)
        after = self.measured(names[1])
        conclusion = self.concluded(before)
        return Verdict(
            self.id,
            reproduced=self.is_wrong(before),
            fixed=not self.is_wrong(after),
            claim_holds=conclusion.answer == "holds",
            first_wrong_event=first,
            findings=tuple(self.findings()),
            before=before,
            after=after,
            title=self.title,
            claim=self.claim,
            conclusion=conclusion,
            names=names,
        )

    def export(self, path: str | PathLike[str], home: str = "") -> Path:
        """Write one self-contained page without Python: report, guided story, verdict, code; return its path.

        home: URL of a list of scenarios, for a link.
        """
        with self.compare() as comparison:
            if comparison.has_follow_up:
                comparison.follow_up()
            return export(self, self.verdict(), comparison, path, home)

    def outputs(self, model: str) -> SideBySide:
        """Return the texts of the broken and the fixed lab on a real model."""
        names = (self.columns[0].name, self.columns[1].name)
        return SideBySide(names, tuple(self._texts(name, model) for name in names))

    def corruption(self, model: str) -> Corruption | None:
        """Return the broken lab's first wrong word on a real model, and its cause; None if all words are right."""
        names = (self.columns[0].name, self.columns[1].name)
        with self.played(names[0], model) as broken, self.played(names[1], model) as fixed:
            broken.run()
            fixed.run()
            return corruption_of(broken, fixed, names)

    def _texts(self, column: str, model: str) -> tuple[str, ...]:
        with self.played(column, model) as lab:
            lab.run()
            return tuple(lab.output(request_id).text for request_id in lab.snapshot().requests)

    def open(self, model: str = "simulated") -> Any:
        """Return the broken lab's dashboard, at the first wrong event."""
        return self.show(self.broken(model))

    def show(self, lab: Lab) -> Any:
        """Return the dashboard of a played lab, at its first wrong event."""
        dashboard = lab.show()
        first = self.first_wrong(lab)
        if first is not None:
            dashboard.open_at(first.moment)
        return dashboard

    def to_test(self, asserting: Asserting | None = None) -> str:
        """Return a pytest file that repeats the broken lab's session; see Lab.to_test."""
        with self.broken() as lab:
            return lab.to_test(asserting)


def _holds(condition: str, measured: Mapping[str, int]) -> bool:
    """Return True if figures meet a condition: "tokens computed = 0", or "blocks lost" for a figure above 0."""
    found = _CONDITION.fullmatch(condition)
    figure, sign, limit = found.groups() if found else (condition, ">", "0")
    other = measured[limit] if limit in measured else int(limit)
    return _SIGNS[sign](measured[figure], other)


def wrong_at(lab: Lab, moment: int, sentence: str) -> FirstWrong:
    """Return event `moment` of the lab's timeline as the first wrong one.

    Raises IndexError if it is not recorded.
    """
    timeline = lab.timeline
    if timeline is None or not timeline.num_dropped <= moment < timeline.end:
        raise IndexError(f"event {moment} is not in the recording")
    return FirstWrong(moment, timeline.events(moment, moment + 1)[0], sentence)


def moment_of(lab: Lab, kind: type[E], test: Callable[[E], bool] = lambda event: True) -> int | None:
    """Return the number of the first recorded event of a kind that passes the test; None if there is none."""
    if lab.timeline is None:
        return None
    events = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
    return next((number for number, event in events if isinstance(event, kind) and test(event)), None)


def symptom(call: Callable[[], object]) -> str:
    """Return the error that a call raises, as one line, or an empty text.

    For columns that fail with an exception.
    """
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ""
