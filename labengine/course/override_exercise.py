"""Fill in an override of a seam: hidden workloads are played with it and with the solution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from inspect import Parameter, Signature, isclass, isfunction, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from labengine.config import ConfigError, checked_call
from labengine.core.parts import Parts
from labengine.course.alone import answered_alone, exact_result
from labengine.course.base import CodeExercise, ExerciseText, Mistake, called
from labengine.course.blank import NO_RETURN, is_blank, lacks_return
from labengine.course.check_result import CheckResult, blank, passed, wrong
from labengine.course.trial import LabMaker, Trial, Workload, picture_of, played, trial_of
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.difference import difference_of
from labengine.session.saved.trace import Trace
from labengine.session.saved.trace import open as open_trace

SIDES = ("as it should be", "yours")
"""Names of the reference engine and of the reader's."""


class WithOverride(CodeExercise):
    """An exercise whose answer replaces a method of the engine: a function named like a seam, or a class."""

    def __init__(
        self,
        text: ExerciseText,
        right_answer: Any,
        mistakes: Sequence[Mistake],
        workloads: Sequence[Workload],
        maker: LabMaker,
    ) -> None:
        if not workloads:
            raise ConfigError(
                "workloads must be a non-empty list of functions that add requests to a lab and take steps"
            )
        for workload in workloads:
            checked_call("a workload", workload, "lab")
        super().__init__(text, right_answer, [(_as_answer(one, right_answer), hint) for one, hint in mistakes])
        self.workloads, self.maker = tuple(workloads), maker
        self._reference = maker.with_override(right_answer)
        self._is_sorted = False
        self._mistaken: dict[int, list[object]] = {}
        """Behaviour of the engine with each common mistake, filled when first needed."""

    @property
    def how_to_answer(self) -> str:
        """The signature of the method, and the call that checks."""
        name, answer = called(self.right_answer), self.right_answer
        what = f"`{_class_signature(answer)}`" if isclass(answer) else f"`{_signature(answer)}`"
        return f"Write {what}{self._size}, and check it with `.check({name})`."

    def show(self, answer: Any = None, *, workload: int = 0) -> Any:
        """Return both engines side by side after a workload (0: the smallest): the right one, and the answer's.

        A part that raises is shown at its crash. For an answer that cannot be played, return a sentence.
        """
        return self._survived("shown", lambda: self._shown(answer, workload))

    def _shown(self, answer: Any, workload: int) -> Any:
        self._prepare()
        if not 0 <= workload < len(self.workloads):
            return wrong(f"workload must be from 0 to {len(self.workloads) - 1}.")
        refusal = answered_alone(lambda: self._why_not_shown(answer, workload))
        return self._drawn(answer, workload) if refusal is None else refusal

    def _why_not_shown(self, answer: Any, workload: int) -> CheckResult | None:
        """Return why an answer's engine cannot be shown; None for one whose run ends, which this process requires."""
        if is_blank(answer):
            return self._empty()
        with played(self.maker, self._parts_with(answer), self._sorted_workloads()[workload]) as trial:
            if trial.ending not in ("endless", "odd value"):
                return None
            return exact_result(wrong(trial.problem, pictures=[_picture(trial, trial.moment)]))

    def _drawn(self, answer: Any, workload: int) -> Any:
        parts, play = self._parts_with(answer), self._sorted_workloads()[workload]
        with ExitStack() as made:
            trials = [self._trial(made, one, play) for one in (self._reference, parts)]
            try:
                comparison = Comparison(trials[0].lab, trials[1].lab, names=SIDES, title=self.name)
            except ConfigError:  # one run ended early; the recordings can still be compared
                left, right = (_recorded(trial.lab) for trial in trials)
                return Comparison(left, right, names=SIDES, title=self.name).show()
            view = comparison.show()
            made.pop_all()
        return view

    def _parts_with(self, answer: Any) -> Parts:
        """Return the engine with an answer in place. Raises ConfigError for an answer that does not fit."""
        asked = self.right_answer
        if isfunction(asked) and isfunction(answer) and called(answer) != called(asked):
            names = f"the function must be called {called(asked)}; yours is called {called(answer)}"
            raise ConfigError(f"{names}: {_signature(asked)}")
        return self.maker.with_override(answer)

    def _trial(self, made: ExitStack, parts: Parts, play: Workload) -> Trial:
        lab = made.enter_context(self.maker.lab(parts))
        return trial_of(lab, play)

    def _empty(self) -> CheckResult:
        return blank(
            f"{called(self.right_answer)} is still empty: put your code where `...` is. {self.how_to_answer}",
            *self._without_override(),
        )

    def _no_return(self, answer: Any) -> str:
        return NO_RETURN if lacks_return(answer, self.right_answer) else ""

    def _without_override(self) -> tuple[str, ...]:
        return ()

    def _prepare(self) -> None:
        self._sorted_workloads()

    def _sorted_workloads(self) -> tuple[Workload, ...]:
        """Return the workloads, sorted by number of events."""
        if not self._is_sorted:
            sizes = {workload: self._num_events(workload) for workload in self.workloads}
            self.workloads = tuple(sorted(self.workloads, key=lambda workload: sizes[workload]))
            self._is_sorted = True
        return self.workloads

    def _num_events(self, workload: Workload) -> int:
        with played(self.maker, self._reference, workload) as trial:
            if trial.problem:
                raise ConfigError(f"a workload fails even with the solution: {trial.problem}")
            assert trial.lab.timeline is not None
            return trial.lab.timeline.end

    def _behaviour(self, parts: Parts) -> list[object]:
        """Return an engine's behaviour on each workload, for comparison."""
        found: list[object] = []
        for workload in self._sorted_workloads():
            with played(self.maker, parts, workload) as trial:
                found.append(trial.behaviour)
        return found

    def _fitting_hint(self, behaviour: Sequence[object]) -> str:
        """Return the hint of the common mistake with the same behaviour on every workload."""
        for place, (mistake, hint) in enumerate(self.mistakes):
            if place not in self._mistaken:
                self._mistaken[place] = self._behaviour(self.maker.with_override(mistake))
            if self._mistaken[place] == behaviour:
                return hint
        return ""


class OverrideExercise(WithOverride):
    """Write an override. It is right if every hidden workload has the same events as with the solution.

    accepts: judges a played lab instead of that; it returns a sentence on the fault, or nothing.
    """

    kind: ClassVar[str] = "Fill in"

    def __init__(self, *texts: Any, accepts: Callable[[Any], str | None] | None = None) -> None:
        super().__init__(*texts)
        if accepts is not None:
            checked_call("accepts", accepts, "lab")
        self._accepts = accepts

    def _judged(self, answer: Any) -> CheckResult:
        if is_blank(answer):
            return self._empty()
        parts = self._parts_with(answer)
        workloads = self._sorted_workloads()
        failed, behaviour = list[int](), list[object]()
        sentence, ending, pictures = "", "", list[tuple[str, str]]()
        for number, workload in enumerate(workloads):
            with played(self.maker, self._reference, workload) as right, played(self.maker, parts, workload) as trial:
                problem, found = self._problem(right, trial)
                behaviour.append(trial.behaviour)
                if problem and not failed:
                    sentence, ending, pictures = problem, trial.ending, found
                failed += [number] if problem else []
                if trial.ending == "endless":
                    text = f"Hidden workload {number} does not end; later workloads were not tried."
                    return wrong(text, problem, pictures=found)
        if not failed:
            return passed(f"Right: all {len(workloads)} hidden workloads run as they should.")
        draws = f"`.show({called(answer)}, workload={failed[0]})` draws it"
        head = f"{len(failed)} of {len(workloads)} hidden workloads fail; the smallest is number {failed[0]}; {draws}."
        no_return = "" if ending == "raised" else self._no_return(answer)
        return wrong(head, sentence, no_return, self._fitting_hint(behaviour), pictures=pictures)

    def _problem(self, right: Trial, trial: Trial) -> tuple[str, list[tuple[str, str]]]:
        """Return the fault in a sentence, with pictures of the moment; an empty sentence if there is none."""
        if trial.problem:
            return trial.problem, [_picture(trial, trial.moment)]
        if self._accepts is not None:
            return self._accepts(trial.lab) or "", [_picture(trial, None)]
        if trial.behaviour == right.behaviour:
            return "", []
        difference = difference_of((right.lab, trial.lab), SIDES)
        if difference is None:
            return "Its events differ from the solution's, though both decide the same way.", [_picture(trial, None)]
        moments = difference.moments
        pictures = [
            (name, picture_of(one.lab, min(moment + 1, one.num_events)))
            for name, one, moment in zip(SIDES, (right, trial), moments, strict=True)
        ]
        return difference.sentence, pictures


def _as_answer(mistake: Any, right_answer: Any) -> Any:
    """Return a mistake as an answer; a function replaces the solution's last method, or the solution itself."""
    if not isfunction(mistake):
        return mistake
    if isclass(right_answer):
        return type("Mistake", right_answer.__mro__[1:2], {next(reversed(_overridden(right_answer))): mistake})
    mistake.__name__ = called(right_answer)
    return mistake


def _recorded(lab: Lab) -> Trace:
    """Return the recording of a lab; it outlives the lab."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.lab"
        lab.save(path)
        return open_trace(path)


def _picture(trial: Trial, moment: int | None) -> tuple[str, str]:
    return SIDES[1], picture_of(trial.lab, moment)


def _signature(function: Callable[..., Any]) -> str:
    full = signature(function)
    plain = [parameter.replace(annotation=Parameter.empty) for parameter in full.parameters.values()]
    return f"def {called(function)}{full.replace(parameters=plain, return_annotation=Signature.empty)}"


def _class_signature(cls: type) -> str:
    """Return the class and the methods that it overrides, without its helpers."""
    methods = [_signature(value) for value in _overridden(cls).values()]
    return f"class {cls.__name__}({cls.__base__.__name__ if cls.__base__ else ''})` with `{'`, `'.join(methods)}"


def _overridden(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if isfunction(value) and hasattr(cls.__base__, name)}
