"""Base class of all kinds of exercises: task, hints one at a time, the solution last, and the number of tries."""

from __future__ import annotations

import inspect
import linecache
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import dedent, fill
from typing import Any, ClassVar, TypeVar

from labengine.config import ConfigError, shown
from labengine.course.alone import UnansweredError, answered_alone, exact_result
from labengine.course.check_result import EDGES, CheckResult, blank, boxed, marked, wrong
from labengine.course.progress import note_check, note_hint, note_solution, progress
from labengine.course.progress_file import NamedScore
from labengine.isolation.endings import OF_THE_USER, interrupts_named, named
from labengine.record.wording import counted

Mistake = tuple[Any, str]
"""A common wrong answer, as a reader would give it, and the hint that fits."""

T = TypeVar("T")

_WIDTH = 100


@dataclass(frozen=True)
class ExerciseText:
    """An exercise's name and texts. num_lines: approximate lines of the solution; 0 if not stated."""

    name: str
    task: str
    hints: tuple[str, ...] = ()
    num_lines: int = 0


@dataclass(frozen=True, repr=False)
class Note:
    """A text for the reader: a hint, or the solution. is_code: keep its lines as they are."""

    text: str
    is_code: bool = False

    def __repr__(self) -> str:
        return self.text if self.is_code else fill(self.text, _WIDTH, break_on_hyphens=False)

    def _repr_html_(self) -> str:
        style = 'style="color:inherit;background:none;margin:0"'
        body = f"<pre {style}>{escape(self.text)}</pre>" if self.is_code else f"<p>{marked(self.text)}</p>"
        return boxed(body, EDGES["blank"])


class Exercise(ABC):
    """A self-checking exercise.

    show() draws the effect of an answer, right or wrong; check() judges it; hint() gives one more hint; solution() is
    the last resort. `mistakes` are common wrong answers, each with a matching hint; `right_answer` passes.
    """

    kind: ClassVar[str]
    panels: tuple[str, ...] = ()
    """Views of the dashboard that show() returns: those the notebook has introduced; () for all."""

    def __init__(self, text: ExerciseText, right_answer: Any, mistakes: Sequence[Mistake]) -> None:
        self.text, self.right_answer, self.mistakes = text, right_answer, tuple(mistakes)
        self._num_hints = 0
        self._is_rehearsal = False

    @property
    def name(self) -> str:
        """The name under which progress is kept."""
        return self.text.name

    @property
    @abstractmethod
    def how_to_answer(self) -> str:
        """One sentence on how to answer, with the signature if there is one."""

    @property
    def _size(self) -> str:
        """Approximate length of the solution, for use after its name; empty if not stated."""
        return f" (about {counted(self.text.num_lines, 'line')})" if self.text.num_lines else ""

    @abstractmethod
    def show(self, answer: Any = None) -> Any:
        """Draw the effect of an answer, or the subject of the question."""

    def check(self, answer: Any = None) -> CheckResult:
        """Judge an answer; a blank one does not count as a try. No answer makes this raise."""
        result = self._survived("checked", lambda: self._judged_safely(answer))
        self._note_result(result)
        return result

    def _survived(self, done: str, judge: Callable[[], T]) -> T | CheckResult:
        """Return the call's result, or a sentence if the answer raises or does not return."""
        with interrupts_named():
            try:
                return judge()
            except UnansweredError as error:
                return error.result
            except OF_THE_USER:
                raise
            except BaseException as error:  # an answer's SystemExit too
                return wrong(no_use(done, error))

    def _note_result(self, result: CheckResult) -> None:
        if result.state != "blank":
            self._note_try(bool(result))

    def _note_try(self, is_passed: bool) -> None:
        if not self._is_rehearsal:
            note_check(self.name, is_passed=is_passed, run=self._newest_score(), better=self._better(is_passed))

    def _judged_safely(self, answer: Any) -> CheckResult:
        """Judge an answer where its code can do no harm: here in this process, for answers that are values."""
        return self._judged(answer)

    @abstractmethod
    def _judged(self, answer: Any) -> CheckResult:
        """Judge an answer. Raises ConfigError for one that cannot be used."""

    def _newest_score(self) -> NamedScore | None:
        return None

    def _better(self, is_passed: bool) -> Callable[[float, float], float] | None:
        """Return a function that picks the better of two scores; None if the newest one does not count."""
        return None

    # -- testing the exercise itself -----------------------------------------------------------------------------------

    def verify(self) -> None:
        """Test the exercise, for its author: blank gets a sentence, the solution passes, each mistake gets its hint.

        Progress does not change. Raises ConfigError, naming what fails.
        """
        self._is_rehearsal = True
        try:
            self._verify()
        finally:
            self._start_over()
            self._is_rehearsal = False

    def _verify(self) -> None:
        result = self._tried([None])
        if result.state != "blank":
            raise ConfigError(f"{self.name}: a blank answer must count as blank, but is {result.state}: {result.text}")
        result = self._tried(self._right_answers())
        if not result:
            raise ConfigError(f"{self.name}: the solution must pass, but does not: {result.text}")
        for mistake, hint in self.mistakes:
            result = self._tried(self._mistaken_answers(mistake))
            if result or hint not in result.lines:
                raise ConfigError(f"{self.name}: a mistake must get the hint {hint!r}, but does not: {result.text}")

    def _tried(self, answers: Sequence[Any]) -> CheckResult:
        """Start over and check answers one after the other; return the result of the last one."""
        self._start_over()
        return [self._judged(answer) for answer in answers][-1]

    def _right_answers(self) -> Sequence[Any]:
        return [self.right_answer]

    def _mistaken_answers(self, mistake: Any) -> Sequence[Any]:
        return [mistake]

    def _start_over(self) -> None:  # noqa: B027  (most kinds remember nothing)
        """Forget all answers given so far."""

    # -- help ----------------------------------------------------------------------------------------------------------

    def hint(self) -> Note:
        """Return the next hint; after the last one, say so."""
        hints = self.text.hints
        if self._num_hints >= len(hints):
            return Note(f"No hints are left ({len(hints)} shown). `.solution()` shows the solution.")
        self._num_hints += 1
        note_hint(self.name, self._num_hints)
        return Note(f"Hint {self._num_hints} of {len(hints)}: {hints[self._num_hints - 1]}")

    def solution(self) -> Note:
        """Return the solution."""
        note_solution(self.name)
        return Note(self.solution_text(), is_code=True)

    def solution_text(self) -> str:
        """Return the solution as text, without noting in the progress that it was seen."""
        return source_of(self.right_answer)

    def picture(self) -> str:
        """Return the state that the task or its answer is about, as SVG; empty if there is none."""
        return ""

    def _blank(self) -> CheckResult:
        return blank(f"Nothing to check yet. {self.how_to_answer}")

    # -- display -------------------------------------------------------------------------------------------------------

    def _paragraphs(self) -> list[str]:
        attempts = progress().get(self.name)
        state = "passed" if attempts and attempts.passed else "not passed yet"
        help = f"{counted(len(self.text.hints), 'hint')}: `.hint()`" if self.text.hints else "No hints"
        return [self.text.task, self.how_to_answer, f"{help} · solution: `.solution()` · {state}"]

    def __repr__(self) -> str:
        head = f"{self.kind}: {self.name}"
        return "\n".join([head, *(fill(text, _WIDTH, break_on_hyphens=False) for text in self._paragraphs())])

    def _repr_html_(self) -> str:
        head = f"<p><b>{marked(self.kind)}</b>: {marked(self.name)}</p>"
        return boxed(head + "".join(f"<p>{marked(text)}</p>" for text in self._paragraphs()), "#0072B2")


def source_of(answer: Any) -> str:
    """Return the source of a function or class, including its docstring; the repr of anything else."""
    if not (inspect.isfunction(answer) or inspect.isclass(answer)):
        return repr(answer)
    linecache.checkcache()
    try:
        return dedent(inspect.getsource(answer))
    except (OSError, TypeError):
        raise ConfigError(f"the source of {shown(answer)} cannot be found: define it in a cell or a file") from None


class CodeExercise(Exercise):
    """An exercise whose answer is code; it is judged in a separate process where possible."""

    def _judged_safely(self, answer: Any) -> CheckResult:
        self._prepare()

        def judge() -> tuple[CheckResult, Any]:
            return exact_result(self._judged(answer)), self._memory()

        result, memory = answered_alone(judge)
        self._remember(memory)
        return result

    def _prepare(self) -> None:
        """Do the work that does not depend on the answer, once."""

    def _memory(self) -> Any:
        """Return the state that judging an answer changes."""

    def _remember(self, memory: Any) -> None:
        """Restore that state after judging in another process."""


def no_use(done: str, error: BaseException) -> str:
    """Return why an answer cannot be used. done: "checked" or "shown". error: what the attempt raised."""
    if isinstance(error, ConfigError):
        return f"This cannot be {done}: {error}"
    return f"This cannot be {done}: a value that your code returns raises {named(error)}."


def called(answer: Any) -> str:
    """Return the name of a reader's function or class."""
    return str(getattr(answer, "__name__", type(answer).__name__))
