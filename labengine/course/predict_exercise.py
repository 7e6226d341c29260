"""Predict, then reveal: a lab stands before a step, and the step itself answers a question about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, ClassVar, TypeVar, get_args

from labengine.config import ConfigError, as_int, checked_call, is_single_int, shown
from labengine.course.alone import UnansweredError, exact, is_plain, read_alone
from labengine.course.base import Exercise, ExerciseText, Mistake
from labengine.course.check_result import CheckResult, blank, passed, wrong
from labengine.course.trial import LabMaker, Workload, picture_of
from labengine.events import Event, StepEnded, StepRolledBack, StepStarted
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.record.wording import block_name, request_name
from labengine.session.question import Mark, Prediction, Question, QuestionKind
from labengine.session.settings import request_id_of

E = TypeVar("E", bound=Event)

_HOW = {
    "block": "click a block in the dashboard, or use `.answer(4)` for #4",
    "request": "click a request in the dashboard, or use `.answer('B')`",
    "hash": "click an entry of the prefix map in the dashboard, or use `.answer('0:ab12')` with its first digits",
    "number": "enter a number under the question in the picture, or use `.answer(4)`",
}


@dataclass(frozen=True)
class RevealedStep:
    """A finished step that answers a question: the state before it, its events, and the state after it."""

    before: Snapshot
    events: tuple[Event, ...]
    after: Snapshot

    def of_kind(self, kind: type[E]) -> list[E]:
        """Return the step's events of a kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def first(self, kind: type[E]) -> E:
        """Return the step's first event of a kind. Raises ConfigError if there is none."""
        found = self.of_kind(kind)
        if not found:
            raise ConfigError(f"the step has no {kind.__name__}, so the question has no answer")
        return found[0]

    def entry_of(self, block_id: int) -> str:
        """Return the prefix-map entry that led to a block before the step."""
        return next(key for key, block_ids in self.before.prefix_map.items() if block_id in block_ids)


Truth = Callable[[RevealedStep], Prediction]
_MAX_DRAWS = 60
"""Random instances to draw before giving up: some have no answer."""
_MAX_ALIKE = 4
"""Draws that must have a different task; after them an instance may differ only in the picture."""


@dataclass(frozen=True)
class Instance:
    """One instance of a question. play: brings an empty lab to the moment before the step.

    keeps_mistakes: False if the hints on common mistakes apply only to the first instance.
    """

    task: str
    play: Workload
    keeps_mistakes: bool = True


Another = Callable[[Random], Instance]
"""Draws an instance; the exercise's truth must answer it."""


class PredictExercise(Exercise):
    """Predict what the next step does. play: brings a new lab to the moment before the step.

    truth: returns the right answer of a finished step. about: the kind of answer. rounds: number of consecutive steps
    asked about; the exercise is passed when all predictions of a row are right. A mistake is a prediction, or a
    function of the step that returns one. reason: why the right answer is right, for wrong answers without a matching
    mistake. another: draws a new instance. until: returns True of the steps so far once the answer is known; by default
    it is known after one step. views: the views that `show` shows; empty for the dashboard.
    """

    kind: ClassVar[str] = "Predict, then reveal"

    def __init__(
        self,
        text: ExerciseText,
        play: Workload,
        truth: Truth,
        about: QuestionKind,
        maker: LabMaker,
        mistakes: Sequence[Mistake] = (),
        rounds: int = 1,
        *,
        reason: str = "",
        another: Another | None = None,
        until: Callable[[RevealedStep], bool] | None = None,
        views: Sequence[str] = (),
    ) -> None:
        checked_call("play", play, "lab")
        checked_call("truth", truth, "step")
        if about not in get_args(QuestionKind):
            raise ConfigError(f"about must be one of {', '.join(get_args(QuestionKind))}, got {shown(about)}")
        super().__init__(text, truth, mistakes)
        self._truth, self.about, self.maker, self.rounds = truth, about, maker, rounds
        self._reason, self._another, self._until, self._views = reason, another, until, tuple(views)
        self._first = self._instance = Instance(text.task, play)
        self._random, self._said_hint = Random(), ""
        self._step: list[Event] = []
        self._before: Snapshot | None = None
        self._judgements: list[tuple[bool, str]] = []
        """Per round: True if the prediction was right, and the matching hint."""
        self._is_shown = self._is_ready = False
        self._num_steps_before = self._num_kept = 0

    @cached_property
    def lab(self) -> Lab:
        """The lab, standing before the step."""
        lab = self.maker.lab()
        lab.hooks.subscribe(self._note)
        self._instance.play(lab)
        self._num_steps_before = lab.snapshot().step
        self._ask(lab)
        return lab

    @property
    def question(self) -> Question:
        """The question, as the dashboard shows it."""
        question = self.lab.session.question
        assert question is not None
        return question

    @property
    def how_to_answer(self) -> str:
        """Where to click, and what to call."""
        rounds = f" The question covers {self.rounds} steps." if self.rounds > 1 else ""
        if self._until is not None:
            return f"`.show()`, then {_HOW[self.about]}. `.check()` continues to the step that reveals it.{rounds}"
        return f"`.show()`, then {_HOW[self.about]}. The next step reveals it: `.check()`, or Step.{rounds}"

    def show(self, answer: Any = None) -> Any:
        """Return the dashboard of the lab, with the question in it."""
        picture = self.lab.view(*self._views) if self._views else self.lab.show(*self.panels)
        self._is_shown = True
        return picture

    def answer(self, prediction: Any) -> CheckResult:
        """Keep a prediction until the next step; it can be changed until then."""
        try:
            self._predict(prediction)
        except ConfigError as error:
            return wrong(f"This is not an answer: {error}")
        except UnansweredError as error:
            return error.result
        return blank(f"You predict {self._named(self.question.prediction)}. The next step answers: `.check()`.")

    def again(self) -> None:
        """Return the lab to the moment before the first question; a lab with an external tier is rebuilt."""
        lab, self._is_ready = self.lab, False
        if lab.external is not None:  # no rewind empties a tier
            lab.close()
            del self.lab
            lab, self._is_shown = self.lab, False
        elif lab.snapshot().step > self._num_steps_before:
            lab.rewind(self._num_steps_before)
        elif lab.snapshot().step < self._num_steps_before:
            self._replay(lab)
        self._ask(lab)
        self._refresh()

    def another(self) -> None:
        """Ask the same question about another random instance, in the same lab."""
        if self._another is None:
            raise ConfigError("this question has only one instance; use `.again()` to ask it again")
        if self.lab.external is not None:
            raise ConfigError("a lab with an external tier cannot be emptied; use `.again()` to ask again")
        self._is_ready = False
        self._use(self._drawn(self._another))
        self._num_hints, self._said_hint = 0, ""
        self._replay(self.lab)
        self._ask(self.lab)
        self._refresh()

    def _drawn(self, draw: Another) -> Instance:
        """Return a random instance that has an answer and is not the current one."""
        for number in range(_MAX_DRAWS):
            instance = draw(self._random)
            is_new = instance.task != self.text.task or number > _MAX_ALIKE
            if is_new and self._has_answer(instance):
                return instance
        raise ConfigError(f"{self.name}: none of {_MAX_DRAWS} random instances has an answer")

    def _has_answer(self, instance: Instance) -> bool:
        try:
            with self.maker.lab() as lab:
                instance.play(lab)
                return len(self._steps_of(lab)) == self.rounds
        except (ConfigError, StopIteration, LookupError):
            return False

    def _use(self, instance: Instance) -> None:
        self.text, self._instance = replace(self.text, task=instance.task), instance

    def _replay(self, lab: Lab) -> None:
        lab.reset()
        self._instance.play(lab)
        self._num_steps_before = lab.snapshot().step

    def take_step(self) -> None:
        """Take the step that is asked about; with `until`, take steps until the answer is known."""
        num_judged = len(self._judgements)
        if self._until is None:
            self.lab.step()
        else:
            self.lab.run(until=lambda lab: len(self._judgements) > num_judged)

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, lab: Lab) -> None:
        self._judgements, self._before, self._is_ready = [], None, True
        self._say(lab)

    def _say(self, lab: Lab, **verdict: Any) -> None:
        """Have views show the question and the result of the newest prediction."""
        offers: dict[str, Callable[[], object]] = {}
        if self._until is not None and not self._is_finished:
            offers["go"] = self.take_step
        if self._judgements:
            offers["again"] = self.again
        if self._num_hints < len(self.text.hints):
            offers["hint"] = self._hint_in_picture
        if self._another is not None and lab.external is None:
            offers["another"] = self.another
        lab.session.question = Question(
            self.text.task, self.about, self._predict, hint=self._said_hint, offers=offers, **verdict
        )

    def _hint_in_picture(self) -> None:
        question, self._said_hint = self.question, self.hint().text
        question.hint = self._said_hint
        if self._num_hints >= len(self.text.hints):
            question.offers = {name: act for name, act in question.offers.items() if name != "hint"}
        self._refresh()

    @property
    def _is_finished(self) -> bool:
        return len(self._judgements) >= self.rounds

    def _predict(self, prediction: Any) -> None:
        if self._is_finished:
            raise ConfigError("the step is over and has revealed the answer; use `.again()` to ask again")
        self.question.prediction = self._plain(prediction)
        self._refresh()

    def _plain(self, prediction: Any) -> Prediction:
        """Return a prediction in the question's form; an object is read in a separate process."""
        snapshot = self.lab.snapshot()
        if is_plain(prediction):
            return self._checked(prediction, snapshot)
        return read_alone(lambda: self._checked(prediction, snapshot))

    def _checked(self, prediction: Any, snapshot: Snapshot) -> Prediction:
        """Return a prediction in the question's form. Raises ConfigError for an unsuitable one."""
        if getattr(prediction, "kind", self.about) != self.about:
            raise ConfigError(f"the question asks for a {self.about}, but a {prediction.kind} is selected")
        value = getattr(prediction, "id", prediction)
        if self.about == "hash":
            found = [key for key in snapshot.prefix_map if isinstance(value, str) and value and key.startswith(value)]
            if not found:
                raise ConfigError(
                    f"no entry of the prefix map begins with {shown(value)}: click one, or type the start of "
                    "its name in `.lab.snapshot().prefix_map` (the letters exist only in the picture)"
                )
            if len(found) > 1:
                raise ConfigError(
                    f"{len(found)} entries of the prefix map begin with {shown(value)}: give more characters"
                )
            return exact(found[0])
        if self.about == "request" and isinstance(value, str):
            try:
                value = request_id_of(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(str(error)) from None
        if not is_single_int(value):
            raise ConfigError(f"a {self.about} must be an integer, got {shown(prediction)}")
        number = as_int(value)
        assert number is not None
        known = {"block": range(len(snapshot.blocks)), "request": snapshot.requests}.get(self.about)
        if known is not None and number not in known:
            raise ConfigError(f"no {self.about} {number} exists")
        return number

    # -- revealing -----------------------------------------------------------------------------------------------------

    def _note(self, event: Event) -> None:
        """Follow the engine: collect a step's events, and judge the prediction when the step is over."""
        if not self._is_ready or self._is_finished:
            return
        if isinstance(event, StepStarted):
            if self._before is None:
                self._step, self._before = [], self.lab.snapshot()
            self._num_kept = len(self._step)
        elif self._before is not None:
            self._step.append(event)
            if isinstance(event, StepRolledBack):
                del self._step[self._num_kept :]
                self._before = self._before if self._num_kept else None
            elif isinstance(event, StepEnded):
                step = RevealedStep(self._before, tuple(self._step), self.lab.snapshot())
                if self._until is None or self._until(step):
                    self._before = None
                    self._reveal(step)

    def _reveal(self, step: RevealedStep) -> None:
        said, truth = self.question.prediction, self._truth(step)
        is_right = said == truth
        spoken = "You made no prediction" if said is None else f"You said {self._named(said)}"
        verdict = f"{spoken}: right." if is_right else f"{spoken}: it is {self._named(truth)}."
        reason = "" if is_right else self._hint_for(said, step)
        self._judgements.append((is_right, reason))
        is_open = not self._is_finished
        if not is_right or not is_open:
            self._note_try(self._num_right == self.rounds)
        if self.rounds > 1:
            verdict += f" {self._num_right} of {len(self._judgements)} right."
        self._say(
            self.lab,
            verdict=verdict,
            is_right=is_right,
            is_open=is_open,
            reason=reason,
            said=self._marks(said),
            truth=self._marks(truth),
        )

    def _marks(self, prediction: Prediction | None) -> tuple[Mark, ...]:
        """Return the marks that show a prediction in a picture."""
        return () if prediction is None or self.about == "number" else ((self.about, prediction),)

    def _hint_for(self, said: Prediction | None, step: RevealedStep) -> str:
        """Return why a prediction was wrong: the hint for that mistake, else the reason for the right answer."""
        if said is None:
            return self._reason
        for mistake, hint in self.mistakes if self._instance.keeps_mistakes else ():
            if _made(mistake, step) == said:
                return hint
        return self._reason or next(reversed(self.text.hints), "")

    @property
    def _num_right(self) -> int:
        return sum(is_right for is_right, _ in self._judgements)

    def _judged(self, answer: Any) -> CheckResult:
        """Take the next step if there is a prediction for it, and return the result of the newest one."""
        if answer is not None and not self._is_finished:
            self._predict(answer)
        if self.question.prediction is not None:
            self.take_step()
        if not self._judgements:
            return self._blank()
        verdict, hint = self.question.verdict, self._judgements[-1][1]
        if not self._is_finished and not self._judgements[-1][0]:
            return wrong(verdict, hint, "The next step asks again; `.again()` starts over.")
        if not self._is_finished:
            return blank(verdict, f"The question covers {self.rounds} steps: what does the next one do?")
        if self._num_right == self.rounds:
            return passed(verdict)
        if self._judgements[-1][0]:
            return wrong(
                f"{self._num_right} of {self.rounds} right: this answer is right, but an earlier one was not.",
                "`.again()` goes back to before the first step.",
            )
        return wrong(verdict, hint, "`.again()` goes back to before the step.")

    def _refresh(self) -> None:
        """Have the dashboard show the question as it is now."""
        if self._is_shown:
            self.lab.feed.publish_soon()

    def _named(self, prediction: Prediction | None) -> str:
        if prediction is None:
            return "nothing"
        if self.about == "block":
            return block_name(int(prediction))
        if self.about == "request":
            return request_name(int(prediction))
        return self._content_named(str(prediction)) if self.about == "hash" else str(prediction)

    def _content_named(self, key: str) -> str:
        """Return the letter that views give to a map entry, and the first digits of its hash."""
        from labengine_widgets.pictures.lettering import numbers_in  # for views only
        from labengine_widgets.words.names import content_name

        assert self.lab.timeline is not None
        group, _, digits = key.partition(":")
        asked = (int(group), bytes.fromhex(digits))
        number = numbers_in(self.lab.timeline, [asked]).get(asked)
        return key[:10] if number is None else f"{content_name(number)} ({key[:10]})"

    # -- rehearsed on another lab --------------------------------------------------------------------------------------

    def _rehearsed(self) -> list[RevealedStep]:
        """Return the steps that are asked about, taken by a separate lab."""
        if self._instance is self._first:
            with self.maker.lab() as lab:
                self._instance.play(lab)
                return self._steps_of(lab)
        with self.lab.fork(self._num_steps_before) as lab:  # a fork numbers words as this lab does
            return self._steps_of(lab)

    def _steps_of(self, lab: Lab) -> list[RevealedStep]:
        """Take the steps that are asked about. Raises ConfigError, or the truth's error, if one has no answer."""
        steps = [_next_step(lab, self._until) for _ in range(self.rounds)]
        for step in steps:
            self._truth(step)
        return steps

    def _right_answers(self) -> Sequence[Any]:
        return [self._truth(step) for step in self._rehearsed()]

    def _mistaken_answers(self, mistake: Any) -> Sequence[Any]:
        """Return right answers up to the first round in which the mistake leads to a wrong one."""
        answers: list[Any] = []
        for step, truth in zip(self._rehearsed(), self._right_answers(), strict=True):
            made = _made(mistake, step)
            answers.append(truth if made is None else made)
            if answers[-1] != truth:
                return answers
        return answers

    def _start_over(self) -> None:
        if self._instance is not self._first:
            self._use(self._first)
            self._is_ready = False
            self._replay(self.lab)
        self.again()

    def _note_result(self, result: CheckResult) -> None:
        """Do nothing: the step that judges a try notes it, because the dashboard can take it, too."""

    def picture(self) -> str:
        """Return the state before the first step that is asked about, as SVG."""
        with self.maker.lab() as lab:
            self._instance.play(lab)
            return picture_of(lab, None)

    def solution_text(self) -> str:
        """Return the right answers, as the views call them."""
        return ", then ".join(map(self._named, self._right_answers()))


def _next_step(lab: Lab, until: Callable[[RevealedStep], bool] | None) -> RevealedStep:
    assert lab.timeline is not None
    before, start = lab.snapshot(), lab.timeline.end
    while lab.step():
        step = RevealedStep(before, tuple(lab.timeline.events(start, lab.timeline.end)), lab.snapshot())
        if until is None or until(step):
            return step
    raise ConfigError("the requests finish before the question has an answer")


def _made(mistake: Any, step: RevealedStep) -> Prediction | None:
    """Return the prediction that a mistake leads to; None if it cannot be made in this step."""
    if not callable(mistake):
        known: Prediction = mistake
        return known
    try:
        made: Prediction = mistake(step)
        return made
    except (ConfigError, StopIteration, LookupError):
        return None


def in_step(number: int, prediction: Prediction) -> Callable[[RevealedStep], Prediction]:
    """Return a mistake that applies only to the lab's step `number`."""
    return lambda step: {number: prediction}[step.after.step]
