"""Fill in a function: its results are compared with the solution's on shown examples and on hidden cases.

The function is called in a separate process where possible; its results are judged in this one.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from traceback import extract_tb
from typing import Any, ClassVar

from labengine.config import ConfigError, shown
from labengine.course.alone import MEMORY, answered_alone, begin_run, exact
from labengine.course.base import CodeExercise, ExerciseText, Mistake, called
from labengine.course.blank import NO_RETURN, is_blank, lacks_return
from labengine.course.check_result import CheckResult, TextTable, blank, passed, wrong
from labengine.isolation.endings import OF_THE_USER, named
from labengine.isolation.limits import EndlessOperationError, ends_soon

Case = tuple[Any, ...]
_MAX_TEXT = 60
_ATOMS = (bool, int, float, complex, str, bytes, type(None))
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of one call, as plain data: a value, whose type is `kind`, or a problem in words.

    arguments: the arguments after the call.
    """

    value: Any = None
    kind: str = ""
    arguments: Case = ()
    problem: str = ""
    is_endless: bool = False


@dataclass(frozen=True)
class Tried:
    """An answer's outcomes, up to the first call that does not end. lacks_return: it always returns None."""

    outcomes: tuple[CallOutcome, ...]
    name: str
    lacks_return: bool


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
            raise ConfigError(f"cases must be a list of argument tuples, as in [(1, 4), (5, 4)], got {shown(cases)}")
        super().__init__(text, right_answer, mistakes)
        self.cases, self.num_shown = tuple(cases), num_shown
        self._signature = inspect.signature(right_answer)
        self._expected = [_outcome(right_answer, case) for case in self.cases]
        for case, expected in zip(self.cases, self._expected, strict=True):
            if expected.problem:
                raise ConfigError(f"the solution fails on {shown(case)}: {expected.problem}")

    @property
    def how_to_answer(self) -> str:
        """The signature, the approximate number of lines, and the call that checks."""
        name = called(self.right_answer)
        return f"Write `{name}({', '.join(self._names)})`{self._size}, and check it with `.check({name})`."

    @property
    def _names(self) -> list[str]:
        return [*self._signature.parameters]

    def show(self, answer: Any = None) -> CheckResult:
        """Return a table of the examples: arguments, the answer's result and the right result."""
        tried = self._survived("shown", lambda: answered_alone(lambda: self._tried_with(answer, self._num_examples)))
        return tried if isinstance(tried, CheckResult) else self._shown(tried)

    def _shown(self, tried: Tried | None) -> CheckResult:
        if tried is None:
            table = self._table(range(self.num_shown), None)
            return CheckResult("blank", ("Examples:",), table)
        outcomes = tried.outcomes
        is_right = all(map(_is_equal, outcomes, self._expected[: self.num_shown]))
        line = f"Results of {tried.name} for the examples:"
        return CheckResult("passed" if is_right else "wrong", (line,), self._table(range(len(outcomes)), outcomes))

    def _judged_safely(self, answer: Any) -> CheckResult:
        return self._verdict(answered_alone(lambda: self._tried_with(answer, len(self.cases))))

    def _judged(self, answer: Any) -> CheckResult:
        return self._verdict(self._tried_with(answer, len(self.cases)))

    def _tried_with(self, answer: Any, num_cases: int) -> Tried | None:
        """Return the answer's outcomes for the first cases; None for a blank answer."""
        if is_blank(answer):
            return None
        if not callable(answer):
            raise ConfigError(f"pass the function itself, as in .check(slot), without calling it, got {shown(answer)}")
        outcomes: list[CallOutcome] = []
        for case in self.cases[:num_cases]:
            if not (outcomes and outcomes[-1].is_endless):
                outcomes.append(_outcome(answer, case))
        return Tried(tuple(outcomes), exact(called(answer)), lacks_return(answer, self.right_answer))

    def _verdict(self, tried: Tried | None) -> CheckResult:
        if tried is None:
            return blank(f"{called(self.right_answer)} is still empty: put your code where `...` is.", self._specified)
        outcomes, last = tried.outcomes, len(tried.outcomes) - 1
        if outcomes[last].is_endless:
            sentence, table = self._sentence(last, outcomes[last]), self._table([last], outcomes[last:])
            return wrong("One case does not end, so later ones were not tried:", sentence, table=table)
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
        no_return = NO_RETURN if tried.lacks_return and not outcomes[first].problem else ""
        return wrong(*lines, no_return, self._fitting_hint(outcomes), table=self._table([first], [outcomes[first]]))

    @property
    def _num_examples(self) -> int:
        return min(self.num_shown, len(self.cases))

    @property
    def _specified(self) -> str:
        return self.how_to_answer

    def _sentence(self, number: int, outcome: CallOutcome) -> str:
        call = f"{called(self.right_answer)}({self._arguments(number)})"
        right = self._expected[number]
        expected = right.value
        if outcome.problem:
            return f"`{call}` {outcome.problem}; right is {_short(expected)}."
        if changed := self._changed(outcome, right):
            return f"`{call}` changes its argument `{changed}`, which also changes it for the caller."
        if not _is_same_type(outcome, right):
            kinds = f"of type {outcome.kind}; it should be {right.kind}"
            return f"`{call}` returns {_short(outcome.value)}, {kinds} ({_short(expected)})."
        return f"`{call}` returns {_short(outcome.value)}; it should return {_short(expected)}."

    def _changed(self, outcome: CallOutcome, right: CallOutcome) -> str:
        """Return the names of the arguments that end up different from the solution's."""
        pairs = zip(self._names, outcome.arguments, right.arguments, strict=False)
        return ", ".join(name for name, yours, wanted in pairs if not _same(yours, wanted))

    def _arguments(self, number: int) -> str:
        return ", ".join(map(_short, self.cases[number]))

    def _fitting_hint(self, outcomes: Sequence[CallOutcome]) -> str:
        """Return the hint of the common mistake that gives the same results in all cases."""
        for mistake, hint in self.mistakes:
            if all(map(_is_equal, outcomes, (_outcome(mistake, case) for case in self.cases))):
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


def _outcome(function: Callable[..., Any], case: Case) -> CallOutcome:
    """Call a function with copies of the arguments; exceptions and endless loops become sentences."""
    arguments = copy.deepcopy(case)
    begin_run(f"{called(function)}({', '.join(map(_short, case))})")
    try:
        with ends_soon():
            value = function(*arguments)
    except EndlessOperationError as error:
        return CallOutcome(problem=f"does not end: {error}", is_endless=True)
    except OF_THE_USER:
        raise
    except MemoryError as error:
        return CallOutcome(problem=f"raises MemoryError: it uses more than {MEMORY}{_line_of(error)}")
    except BaseException as error:
        raises = "raises" if isinstance(error, Exception) else "ends the process: it raises"
        return CallOutcome(problem=f"{raises} {named(error)}{_line_of(error)}")
    return CallOutcome(plain_value(value), exact(type(value).__name__), plain_value(arguments))


def _line_of(error: BaseException) -> str:
    frames = extract_tb(error.__traceback__)[1:]
    return f" (in {frames[-1].name}, line {frames[-1].lineno})" if frames else ""


def _is_equal(one: CallOutcome, other: CallOutcome) -> bool:
    if one.problem or other.problem:
        return one.problem.partition(":")[0] == other.problem.partition(":")[0]
    is_alike = _is_same_type(one, other) and _same(one.value, other.value)
    return is_alike and _same(one.arguments, other.arguments)


def _is_same_type(one: CallOutcome, other: CallOutcome) -> bool:
    """Return True for two values of the same type, and for a list and a tuple."""
    return one.kind == other.kind or (isinstance(one.value, list | tuple) and isinstance(other.value, list | tuple))


def _same(one: Any, other: Any) -> bool:
    """Compare plain values; floats may differ by rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _short(value: Any) -> str:
    text = shown(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


# -- results of a reader's code as plain data: judging them runs none of that code -------------------------------------


@dataclass(frozen=True)
class Foreign:
    """A value that is not plain data, by its type and its text."""

    kind: str
    text: str

    def __repr__(self) -> str:
        return self.text


def plain_value(value: Any) -> Any:
    """Return a copy of a value in Python's built-in types; a Foreign if it has other types or exceeds 1 MiB."""
    copied = _copied(value)
    return copied if len(pickle.dumps(copied)) <= _MAX_BYTES else _foreign(value)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    for base in (list, tuple):
        if issubclass(kind, base):
            return base(map(_copied, base.__iter__(value)))
    if kind in (set, frozenset):
        return kind(map(_copied, value))
    if kind is dict:
        return {_copied(key): _copied(one) for key, one in value.items()}
    if issubclass(kind, float):
        return float.__pos__(value)
    return int.__pos__(index(value)) if hasattr(kind, "__index__") else _foreign(value)


def _foreign(value: Any) -> Foreign:
    return Foreign("".join((type(value).__name__,)), "".join((shown(value),)))
