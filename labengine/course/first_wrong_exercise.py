"""Find the first wrong event: a run of a broken engine is shown, and the answer is the number of an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from labengine.config import ConfigError, as_int, is_single_int, shown
from labengine.course.base import Exercise, ExerciseText, Mistake
from labengine.course.check_result import CheckResult, passed, wrong
from labengine.course.trial import event_at, event_name
from labengine.events import Event, StepFailed, StepRolledBack, ViolationFound
from labengine.lab import Lab

Found = tuple[int, str]
"""The number of the first wrong event, and a sentence on what is wrong with it."""


class FirstWrongExercise(Exercise):
    """Find the first wrong event of a run. make: returns the broken lab, played; find: its first wrong event.

    A mistake is a kind of event ("SlotsWritten"), or a function of the lab that returns a number.
    """

    kind: ClassVar[str] = "Find the first wrong event"

    def __init__(
        self,
        text: ExerciseText,
        make: Callable[[], Lab],
        find: Callable[[Lab], Found | None],
        mistakes: Sequence[Mistake] = (),
    ) -> None:
        for mistake, _ in mistakes:
            if not isinstance(mistake, str) and not callable(mistake):
                raise ConfigError(
                    f"a mistake is a kind of event or a function of the lab that returns a number, got {shown(mistake)}"
                )
        super().__init__(text, None, mistakes)
        self._make, self._find = make, find
        self._opened_at: int | None = None
        """The moment at which show() opens the run: standing there is no answer."""

    @cached_property
    def lab(self) -> Lab:
        """The broken lab, played: it can be shown, looked at and asked, as any lab."""
        return self._make()

    @cached_property
    def first(self) -> Found:
        """The first wrong event of the run. Raises ConfigError for a run in which nothing is wrong."""
        found = self._find(self.lab)
        if found is None:
            raise ConfigError(f"nothing goes wrong in the run of the exercise {self.name!r}: no rule is broken")
        return found

    @property
    def how_to_answer(self) -> str:
        """How to give an event."""
        return (
            "Go through the run with `.show()`. Answer with an event's number, `.check(17)`; or select an event in the "
            "log of the dashboard, or stand right after it, and run `.check()`."
        )

    def show(self, answer: Any = None) -> Any:
        """Return the dashboard of the broken run, at its beginning; `lab` of the exercise is the lab."""
        dashboard = self.lab.show()
        self.lab.goto(0)
        self._opened_at = self.lab.moment
        return dashboard

    def _judged(self, answer: Any) -> CheckResult:
        number = self._pointed_at() if answer is None else self._number_of(answer)
        if number is None:
            return self._blank()
        first, sentence = self.first
        name = event_name(self.lab, number)
        if number == first:
            return passed(f"Yes: {event_name(self.lab, number, with_method=True)}.", sentence)
        fitting = self._fitting_hint(number)
        if number < first:
            return wrong(f"No: after {name} all is still right, and no rule is broken. It comes later.", fitting)
        return wrong(f"No: {self._consequence(number, name)}", fitting)

    def _consequence(self, number: int, name: str) -> str:
        event = event_at(self.lab, number)
        ask = f"`.lab.why(event={number})` says what led to it."
        if isinstance(event, ViolationFound):
            return f"{name} is a check's report, at the end of the step. The event that it reports came before. {ask}"
        if isinstance(event, StepFailed | StepRolledBack):
            return f"{name} is where it was noticed: an assertion is a symptom. The cause came before. {ask}"
        return f"that event is a consequence: when {name} happened, the state was wrong already. {ask}"

    def _number_of(self, answer: Any) -> int:
        timeline = self.lab.timeline
        assert timeline is not None
        number = as_int(getattr(answer, "id", answer) if getattr(answer, "kind", "event") == "event" else answer)
        known = range(timeline.num_dropped, timeline.end)
        if not is_single_int(number) or number not in known:
            raise ConfigError(f"an event is a number from {known[0]} to {known[-1]}, got {shown(answer)}")
        return cast(int, number)

    def _pointed_at(self) -> int | None:
        """Return the event that is selected in the dashboard, or the one before the moment that it shows."""
        if self.lab.timeline is None:
            return None
        selection = self.lab.selection
        if selection is not None and selection.kind == "event":
            return cast(int, selection.id)
        moment = self.lab.moment
        return None if not moment or moment == self._opened_at else moment - 1

    def _fitting_hint(self, number: int) -> str:
        kind = type(event_at(self.lab, number)).__name__
        for mistake, hint in self.mistakes:
            if mistake == kind or (callable(mistake) and mistake(self.lab) == number):
                return hint
        return ""

    def _right_answers(self) -> Sequence[Any]:
        return [self.first[0]]

    def _mistaken_answers(self, mistake: str | Callable[[Lab], int]) -> Sequence[Any]:
        """Return the number of the event that a common mistake names: the last one of a kind."""
        if callable(mistake):
            return [mistake(self.lab)]
        assert self.lab.timeline is not None
        numbered = enumerate(self.lab.timeline.events(), self.lab.timeline.num_dropped)
        return [max(number for number, event in numbered if type(event).__name__ == mistake)]

    def solution_text(self) -> str:
        """Return the event, with what decided it and what is wrong with it."""
        number, sentence = self.first
        return f"{event_name(self.lab, number, with_method=True)}. {sentence}"


def first_violation(lab: Lab) -> Found | None:
    """Return the earliest event that broke a rule, or at which a part raised; None for a run without either."""
    known = [(v.first_event, f"It breaks the rule “{v.rule}”: {v.message}.") for v in lab.violations]
    numbered = [(number, sentence) for number, sentence in known if number is not None]
    if numbered:
        return min(numbered, key=lambda one: one[0])
    if lab.crash is not None and lab.crash.moment is not None:
        return lab.crash.moment - 1, f"{lab.crash}."
    return None


def nth_event(kind: type[Event], place: int = 0) -> Callable[[Lab], int]:
    """Return a function of a lab: the number of its event of a kind at this place, counted from 0."""

    def number(lab: Lab) -> int:
        assert lab.timeline is not None
        numbered = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
        return [number for number, event in numbered if isinstance(event, kind)][place]

    return number
