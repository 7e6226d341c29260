"""A scenario: an upstream report, told so that everybody can run it, see it go wrong, and judge claim and fix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from operator import itemgetter
from typing import Any, ClassVar, TypeVar

from labengine.config import ConfigError
from labengine.events import Event
from labengine.lab import Lab
from labengine.scenarios.corruption import Corruption, corruption_of
from labengine.scenarios.experiment import Column as Column
from labengine.scenarios.experiment import Experiment as Experiment
from labengine.scenarios.experiment import settings as settings
from labengine.scenarios.guide import Stop as Stop
from labengine.scenarios.guide import sentences as sentences
from labengine.scenarios.side_by_side import SideBySide
from labengine.scenarios.table import Table as Table
from labengine.scenarios.verdict import FirstWrong as FirstWrong
from labengine.scenarios.verdict import Verdict as Verdict
from labengine.session.compare.comparison import Comparison

E = TypeVar("E", bound=Event)


class Scenario(Experiment):
    """An experiment whose first column is broken and whose second is fixed; rivals follow.

    An override is a small subclass of a production class in the scenario's own file, one method each, handed over in
    Parts: no flags, no patching. Further experiments on the same report stand in `experiments`.
    """

    id: ClassVar[str]
    """Engine and number: nano-vllm-219."""
    title: ClassVar[str]
    url: ClassVar[str]
    claim: ClassVar[str]
    """The report in one sentence of ours."""
    sentences: ClassVar[tuple[str, ...]]
    """What to look at, in order."""
    guide: ClassVar[tuple[Stop, ...]] = ()
    """The sentences of the compare view, each with the event after which it is said; those of `later` come last."""
    roles: ClassVar[tuple[str, str]] = ("the bug", "the fix")
    """What the broken and the fixed column are in the story, above their columns."""
    later_question: ClassVar[str] = "What does it cost later?"
    experiments: Mapping[str, Experiment] = {}
    """Further experiments, by name."""

    # -- to be told by each scenario -----------------------------------------------------------------------------------

    @abstractmethod
    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return whether what a column measured shows what the report is about."""

    def findings(self) -> Iterator[str]:
        """What the experiments show, a sentence or two each, with the numbers of this run."""
        for experiment in (self, *self.experiments.values()):
            answer = experiment.answer(experiment.table())
            if answer:
                yield answer

    def claim_holds(self, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Return whether the report is right: by default, when the broken column is."""
        return self.is_wrong(before)

    def opening(self, lab: Lab) -> None:
        """What has happened when the compare view opens: by default all of it."""
        self.play(lab)

    def acts_later(self) -> tuple[Callable[[Lab], Any], ...]:
        """What shows the cost later: single acts, each an add or a step. Empty: nothing more to show."""
        return ()

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the event that made the state wrong: the earliest that broke a rule. None when no rule is broken.

        A scenario whose wrong breaks no rule says itself which event it is.
        """
        known = [(v.first_event, v.message) for v in lab.violations if v.first_event is not None]
        return wrong_at(lab, *min(known, key=itemgetter(0))) if known else None

    # -- what follows --------------------------------------------------------------------------------------------------

    def broken(self, model: str = "simulated") -> Lab:
        """Return the broken lab, played."""
        return self.played(self.columns[0].name, model)

    def fixed(self, model: str = "simulated") -> Lab:
        """Return the fixed lab, played."""
        return self.played(self.columns[1].name, model)

    def later(self, lab: Lab) -> None:
        """Go on with a lab that has seen the opening, until it shows what the bug costs later. ConfigError without."""
        acts = self.acts_later()
        if not acts:
            raise ConfigError(f"{self.id} has no part that comes later: all of it has happened")
        for act in acts:
            act(lab)

    def compare(self, model: str = "simulated", *, columns: tuple[str, str] | None = None) -> Comparison:
        """Return the broken lab beside the fixed one, or any two columns, with the story's sentences.

        Close it when done.
        """
        names = columns or (self.columns[0].name, self.columns[1].name)
        is_story = names == (self.columns[0].name, self.columns[1].name)
        with ExitStack() as opened:
            left, right = (opened.enter_context(self.lab(name, model)) for name in names)
            self.opening(left)
            self.opening(right)
            comparison = Comparison(
                left,
                right,
                names=names,
                roles=self.roles if is_story else ("", ""),
                title=f"{self.id}  {self.title}",
                guide=self.guide if is_story else (),
                follow_ups=self.acts_later(),
                follow_up_question=self.later_question,
            )
            opened.pop_all()
        return comparison

    def verdict(self) -> Verdict:
        """Run it all, on the simulated model, and judge."""
        names = (self.columns[0].name, self.columns[1].name)
        with self.broken() as lab:
            before, first = self.measure(lab), self.first_wrong(lab)
        after = self.measured(names[1])
        holds = self.claim_holds(before, after)
        return Verdict(
            self.id,
            reproduced=self.is_wrong(before),
            fixed=not self.is_wrong(after),
            claim_holds=holds,
            first_wrong_event=first,
            findings=tuple(self.findings()),
            before=before,
            after=after,
            title=self.title,
            claim=self.claim,
            names=names,
        )

    def outputs(self, model: str) -> SideBySide:
        """What the broken and the fixed lab write on a real model, and where they part."""
        names = (self.columns[0].name, self.columns[1].name)
        return SideBySide(names, tuple(self._texts(name, model) for name in names))

    def corruption(self, model: str) -> Corruption | None:
        """What the broken lab says wrong on a real model, from the first wrong word back to the slot; None: nothing."""
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
        """Return the dashboard of a lab that was played, at its first wrong event."""
        dashboard = lab.show()
        first = self.first_wrong(lab)
        if first is not None:
            dashboard.open_at(first.moment)
        return dashboard


def wrong_at(lab: Lab, moment: int, sentence: str) -> FirstWrong:
    """Return the first wrong event, by its number in the lab's timeline.

    IndexError when it is not recorded any more.
    """
    timeline = lab.timeline
    if timeline is None or not timeline.num_dropped <= moment < timeline.end:
        raise IndexError(f"event {moment} is not in the recording")
    return FirstWrong(moment, timeline.events(moment, moment + 1)[0], sentence)


def moment_of(lab: Lab, kind: type[E], test: Callable[[E], bool] = lambda event: True) -> int | None:
    """Return the number of the first recorded event of a kind that passes the test; None when there is none."""
    if lab.timeline is None:
        return None
    events = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
    return next((number for number, event in events if isinstance(event, kind) and test(event)), None)


def symptom(call: Callable[[], object]) -> str:
    """Return the error that a call ends with, as a line; empty when it goes well.

    For columns that break in the open.
    """
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ""
