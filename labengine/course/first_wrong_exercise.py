"""Find the first wrong event: the exercise shows a run of a broken engine, and the answer is an event's number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from textwrap import fill
from typing import Any, ClassVar, cast

from labengine.config import ConfigError, as_int, is_single_int, shown
from labengine.course.alone import is_plain, read_alone
from labengine.course.base import Exercise, ExerciseText, Mistake
from labengine.course.check_result import CheckResult, passed, wrong
from labengine.course.trial import event_at, event_name, picture_of
from labengine.events import DecisionDiffered, Event, StepFailed, StepRolledBack, ViolationFound
from labengine.lab import Lab

_WIDTH = 100

Found = tuple[int, str]
"""The number of the first wrong event, and a sentence on its fault."""


class FirstWrongExercise(Exercise):
    """Find the first wrong event of a run. make(check): returns the broken lab, played with or without its checks.

    find: returns the first wrong event of the run with checks. A mistake is a kind of event ("SlotsWritten"), or a
    function of the lab that returns a number. because: why the event is wrong, in a sentence or two.
    """

    kind: ClassVar[str] = "Find the first wrong event"

    def __init__(
        self,
        text: ExerciseText,
        make: Callable[[bool], Lab],
        find: Callable[[Lab], Found | None],
        mistakes: Sequence[Mistake] = (),
        because: str = "",
    ) -> None:
        for mistake, _ in mistakes:
            if not isinstance(mistake, str) and not callable(mistake):
                raise ConfigError(
                    f"a mistake must be an event kind or a function from the lab to a number, got {shown(mistake)}"
                )
        super().__init__(text, None, mistakes)
        self._make, self._find, self.because = make, find, because
        self._opened_at: int | None = None
        """The moment at which show() opens the run; staying there does not count as an answer."""

    @cached_property
    def lab(self) -> Lab:
        """The broken lab, after its run. It can be shown and questioned like any lab.

        It has no checks, and hides the names of methods until the first try: both would give the event away.
        """
        lab = self._make(False)
        lab.session.hides_seams = True
        return lab

    @cached_property
    def judged(self) -> Lab:
        """The same run with checks: its `violations` and its dashboard show the fault."""
        return self._make(True)

    @cached_property
    def first(self) -> Found:
        """The first wrong event of the run. Raises ConfigError for a run without a fault."""
        found = self._find(self.judged)
        if found is None:
            raise ConfigError(
                f"the run of exercise {self.name!r} must break a rule, but breaks none: no event in it is wrong"
            )
        number, sentence = found
        return number - self._num_reports_before(number), sentence

    def _num_reports_before(self, number: int) -> int:
        """Return the number of events before this one that only the run with checks has."""
        if self.lab.session.watch is not None:  # an upstream bug's lab
            return 0
        assert self.judged.timeline is not None
        earlier = self.judged.timeline.events(self.judged.timeline.num_dropped, number)
        return sum(isinstance(event, ViolationFound | DecisionDiffered) for event in earlier)

    @property
    def how_to_answer(self) -> str:
        """How to give an event."""
        return (
            "Go through the run with `.show()`. Answer with an event's number, as in `.check(2)`; or select an event "
            "in the log of the dashboard, or stop right after it, and run `.check()`."
        )

    def show(self, answer: Any = None) -> Any:
        """Return the dashboard of the broken run, at its beginning; the exercise's `lab` is the lab it shows."""
        dashboard = self.lab.show(*self.panels)
        self.lab.goto(0)
        self._opened_at = self.lab.moment
        return dashboard

    def _judged(self, answer: Any) -> CheckResult:
        number = self._pointed_at() if answer is None else self._plain(answer)
        if number is None:
            return self._blank()
        first, sentence = self.first
        self.lab.session.hides_seams = False
        name = event_name(self.lab, number)
        if number == first:
            return passed(f"Yes: {event_name(self.lab, number, with_method=True)}.", self.because, sentence)
        fitting, found = self._fitting_hint(number), self._what_checks_say()
        if number < first:
            text = f"No: after {name} everything is still right. The first wrong event comes later."
            return wrong(text, fitting, found)
        return wrong(f"No: {self._consequence(number, name)}", fitting, found)

    def _what_checks_say(self) -> str:
        """Return where the checks report on this run; empty if they found nothing."""
        if self.lab.session.watch is not None or not self.judged.violations:
            return ""
        return "For the checks' findings on this run, see `.judged.show()` and `.judged.violations`."

    def _consequence(self, number: int, name: str) -> str:
        event = event_at(self.lab, number)
        ask = f"`.lab.why(event={number})` shows what led to it."
        if isinstance(event, ViolationFound):
            return f"{name} is a check's report, made at the end of the step, on an earlier event. {ask}"
        if isinstance(event, StepFailed | StepRolledBack):
            return f"{name} is where the error was noticed: an assertion is a symptom. The cause came before. {ask}"
        return f"that event is a consequence: when {name} happened, the state was already wrong. {ask}"

    def _plain(self, answer: Any) -> int:
        """Return the event number that an answer stands for; an object is read in a separate process."""
        timeline = self.lab.timeline
        assert timeline is not None
        known = range(timeline.num_dropped, timeline.end)
        return _number_of(answer, known) if is_plain(answer) else read_alone(lambda: _number_of(answer, known))

    def _pointed_at(self) -> int | None:
        """Return the event selected in the dashboard, or the last one before the shown moment."""
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

    def _start_over(self) -> None:
        self.lab.session.hides_seams = True

    def _right_answers(self) -> Sequence[Any]:
        return [self.first[0]]

    def _mistaken_answers(self, mistake: str | Callable[[Lab], int]) -> Sequence[Any]:
        """Return the number of the event that a common mistake names: the last one of a kind."""
        if callable(mistake):
            return [mistake(self.lab)]
        assert self.lab.timeline is not None
        numbered = enumerate(self.lab.timeline.events(), self.lab.timeline.num_dropped)
        return [max(number for number, event in numbered if type(event).__name__ == mistake)]

    def picture(self) -> str:
        """Return the state right after the first wrong event, as SVG."""
        return picture_of(self.lab, self.first[0] + 1)

    def solution_text(self) -> str:
        """Return the event and the method that decided it, then its fault, each on a new line."""
        number, sentence = self.first
        named = f"{event_name(self.lab, number, with_method=True)}."
        return "\n".join(fill(line, _WIDTH) for line in (named, self.because, sentence) if line)


def _number_of(answer: Any, known: range) -> int:
    number = as_int(getattr(answer, "id", answer) if getattr(answer, "kind", "event") == "event" else answer)
    if not is_single_int(number) or number not in known:
        raise ConfigError(f"an event must be a number from {known[0]} to {known[-1]}, got {shown(answer)}")
    return int(cast(int, number))


def first_violation(lab: Lab) -> Found | None:
    """Return the earliest event that broke a rule or at which a part raised; None if there is none."""
    known = [(v.first_event, v.rule == "said", v) for v in lab.violations if v.first_event is not None]
    if known:  # if one event has several, prefer any to the one on the core's own bookkeeping
        number, _, violation = min(known, key=lambda one: one[:2])
        leads = "Because of it a forward pass breaks" if violation.rule == "read" else "It breaks"
        return number, f"{leads} the rule “{violation.rule}”: {violation.message}."
    if lab.crash is not None and lab.crash.moment is not None:
        return lab.crash.moment - 1, f"{lab.crash}."
    return None


def nth_event(kind: type[Event], place: int = 0, **fields: Any) -> Callable[[Lab], int]:
    """Return a function of a lab: the number of its event of a kind, with these fields, at this place from 0."""

    def number(lab: Lab) -> int:
        assert lab.timeline is not None
        numbered = enumerate(lab.timeline.events(), lab.timeline.num_dropped)
        found = [number for number, event in numbered if isinstance(event, kind) and _has(event, fields)]
        return found[place]

    return number


def _has(event: Event, fields: Mapping[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in fields.items())
