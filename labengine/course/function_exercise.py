"""Fill in a function: its results are compared with the solution's on examples that are shown, and on hidden cases."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any, ClassVar

from labengine.config import ConfigError, shown
from labengine.course.alone import MEMORY, answered_alone, begin_run, exact_result
from labengine.course.base import CodeExercise, ExerciseText, Mistake, called
from labengine.course.blank import NO_RETURN, is_blank, lacks_return
from labengine.course.check_result import CheckResult, TextTable, blank, passed, wrong
from labengine.finder.endings import OF_THE_USER, named
from labengine.finder.limits import EndlessOperationError, ends_soon

Case = tuple[Any, ...]
_MAX_TEXT = 60


@dataclass(frozen=True)
class CallOutcome:
    """What a function did with one case: its value, or a problem in words. changed: the argument that it changed."""

    value: Any = None
    problem: str = ""
    changed: str = ""
    is_endless: bool = False


class FunctionExercise(CodeExercise):
    """Write a function. The first num_shown cases are examples; the others are hidden."""

    kind: ClassVar[str] = "Fill in"

    def __init__(
        self,
        text: ExerciseText,
        right_answer: Callable[..., Any],
        mistakes: Sequence[Mistake],
        cases: Sequence[Case],
        num_shown: int = 3,
    ) -> None:
        if not callable(right_answer):
            raise ConfigError(f"solution must be a function, got {shown(right_answer)}")
        if not cases or not all(isinstance(case, tuple) for case in cases):
            raise ConfigError(f"cases is a list of tuples of arguments, as in [(1, 4), (5, 4)]; got {shown(cases)}")
        super().__init__(text, right_answer, mistakes)
        self.cases, self.num_shown = tuple(cases), num_shown
        self._signature = inspect.signature(right_answer)
        self._expected = [_outcome(right_answer, case, self._names) for case in self.cases]
        for case, expected in zip(self.cases, self._expected, strict=True):
            if expected.problem:
                raise ConfigError(f"the solution fails on {shown(case)}: {expected.problem}")

    @property
    def how_to_answer(self) -> str:
        """The signature, the lines that it takes, and the call that checks."""
        name = called(self.right_answer)
        size = f" (about {_lines(self.text.num_lines)})" if self.text.num_lines else ""
        return f"Write `{name}({', '.join(self._names)})`{size}, and check it with `.check({name})`."

    @property
    def _names(self) -> list[str]:
        return [*self._signature.parameters]

    def show(self, answer: Any = None) -> CheckResult:
        """Return a table of the examples: arguments, what the answer returns, and what is right."""
        return self._survived("shown", lambda: answered_alone(lambda: exact_result(self._shown(answer))))

    def _shown(self, answer: Any) -> CheckResult:
        if is_blank(answer):
            table = self._table(range(self.num_shown), None)
            return CheckResult("blank", ("Examples of what is right:",), table)
        _refuse_uncallable(answer)
        outcomes: list[CallOutcome] = []
        for case in self.cases[: self.num_shown]:
            if not (outcomes and outcomes[-1].is_endless):
                outcomes.append(_outcome(answer, case, self._names))
        is_right = all(map(_is_equal, outcomes, self._expected[: self.num_shown]))
        line = f"What {called(answer)} returns for the examples:"
        return CheckResult("passed" if is_right else "wrong", (line,), self._table(range(len(outcomes)), outcomes))

    def _judged(self, answer: Any) -> CheckResult:
        if is_blank(answer):
            return blank(f"{called(self.right_answer)} is still empty: put your code where `...` is.", self._specified)
        _refuse_uncallable(answer)
        outcomes = []
        for number, case in enumerate(self.cases):
            outcomes.append(_outcome(answer, case, self._names))
            if outcomes[-1].is_endless:
                table = self._table([number], outcomes[-1:])
                return wrong(
                    "The cases after this one were not tried:", self._sentence(number, outcomes[-1]), table=table
                )
        failed = [i for i, expected in enumerate(self._expected) if not _is_equal(outcomes[i], expected)]
        if not failed:
            return passed(
                f"Right, for {len(self.cases)} cases ({len(self.cases) - self._num_examples} of them hidden)."
            )
        first = min(failed, key=lambda i: len(repr(self.cases[i])))
        lines = [
            f"{len(failed)} of {len(self.cases)} cases fail; the smallest:",
            self._sentence(first, outcomes[first]),
        ]
        no_return = NO_RETURN if lacks_return(answer, self.right_answer) else ""
        return wrong(*lines, no_return, self._fitting_hint(outcomes), table=self._table([first], [outcomes[first]]))

    @property
    def _num_examples(self) -> int:
        return min(self.num_shown, len(self.cases))

    @property
    def _specified(self) -> str:
        return self.how_to_answer

    def _sentence(self, number: int, outcome: CallOutcome) -> str:
        call = f"{called(self.right_answer)}({self._arguments(number)})"
        expected = self._expected[number].value
        if outcome.problem:
            return f"`{call}` {outcome.problem}; right is {_short(expected)}."
        if outcome.changed:
            return f"`{call}` changes its argument `{outcome.changed}`: the caller's table is not the same afterwards."
        if not _is_same_type(outcome.value, expected):
            kinds = f"{type(outcome.value).__name__}, and {type(expected).__name__} is wanted"
            return f"`{call}` returns {_short(outcome.value)}: that is {kinds} ({_short(expected)})."
        return f"`{call}` returns {_short(outcome.value)}; right is {_short(expected)}."

    def _arguments(self, number: int) -> str:
        return ", ".join(map(_short, self.cases[number]))

    def _fitting_hint(self, outcomes: list[CallOutcome]) -> str:
        """Return the hint of the common mistake that gives the same results everywhere."""
        for mistake, hint in self.mistakes:
            if all(map(_is_equal, outcomes, (_outcome(mistake, case, self._names) for case in self.cases))):
                return hint
        return ""

    def _table(self, numbers: Sequence[int], outcomes: Sequence[CallOutcome] | None) -> TextTable:
        numbers = [number for number in numbers if number < len(self.cases)]
        head = [*self._names, "right"] if outcomes is None else [*self._names, "yours", "right"]
        rows = []
        for place, number in enumerate(numbers):
            yours = [] if outcomes is None else [outcomes[place].problem or _short(outcomes[place].value)]
            rows.append([*map(_short, self.cases[number]), *yours, _short(self._expected[number].value)])
        return TextTable([head, *rows])


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"


def _refuse_uncallable(answer: Any) -> None:
    if not callable(answer):
        raise ConfigError(f"give the function itself, as in .check(slot), without calling it; got {shown(answer)}")


def _outcome(function: Callable[..., Any], case: Case, names: Sequence[str]) -> CallOutcome:
    """Call a function with copies of the arguments. Return what it raises, and a loop without an end, as a sentence."""
    arguments = copy.deepcopy(case)
    begin_run(f"{called(function)}({', '.join(map(_short, case))})")
    try:
        with ends_soon():
            value = function(*arguments)
    except EndlessOperationError as error:
        return CallOutcome(problem=f"does not end: it is in {error}", is_endless=True)
    except OF_THE_USER:
        raise
    except MemoryError as error:
        return CallOutcome(problem=f"raises MemoryError: it takes more than {MEMORY}{_line_of(error)}")
    except BaseException as error:
        raises = "raises" if isinstance(error, Exception) else "ends the process: it raises"
        return CallOutcome(problem=f"{raises} {named(error)}{_line_of(error)}")
    changed = [name for name, old, new in zip(names, case, arguments, strict=False) if not _same(old, new)]
    return CallOutcome(value, changed=", ".join(changed))


def _line_of(error: BaseException) -> str:
    frames = extract_tb(error.__traceback__)[1:]
    return f" (in {frames[-1].name}, line {frames[-1].lineno})" if frames else ""


def _is_equal(one: CallOutcome, other: CallOutcome) -> bool:
    if one.problem or other.problem:
        return one.problem.partition(":")[0] == other.problem.partition(":")[0]
    return one.changed == other.changed and _is_same_type(one.value, other.value) and _same(one.value, other.value)


def _is_same_type(one: Any, other: Any) -> bool:
    """True for two values of one type, and for a list and a tuple."""
    return type(one) is type(other) or (isinstance(one, list | tuple) and isinstance(other, list | tuple))


def _same(one: Any, other: Any) -> bool:
    """Compare values of a reader's code: floats up to rounding; what cannot be compared is different."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    try:
        return bool(one == other)
    except Exception:
        return False


def _short(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
