"""Short lines about requests, breakpoints, violations and errors, as the magics print them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from IPython import display as ipython_display
from IPython.core.error import UsageError

from labengine.config import ConfigError
from labengine.lab import Lab
from labengine.magics.current_lab import CurrentLab
from labengine.record.violation import Violation
from labengine.record.wording import counted, readable, request_name
from labengine.session.history.crash import Crash
from labengine.session.stepper import LabClosedError
from labengine.session.violation_warnings import ViolationWarning

display: Callable[[object], object] = ipython_display.display
"""IPython's display, which is untyped."""


def request_lines(lab: Lab) -> Iterator[str]:
    """Yield a line for each of the newest ten requests: name, id, status, tokens, and the text so far."""
    requests = list(lab.snapshot().requests.items())
    if len(requests) > 10:
        yield f"({counted(len(requests) - 10, 'earlier request')})"
    for request_id, request in requests[-10:]:
        output = lab.output(request_id)
        status = request.status if output.finish_reason is None else f"{request.status} ({output.finish_reason})"
        tokens = f"{request.num_prompt_tokens} + {len(output.token_ids)} tokens"
        yield f"{request_name(request_id)} (id {request_id})  {status}, {tokens}  {readable(output.text, 60)}".rstrip()


def place_of(error: BaseException) -> str:
    """Return where an error was raised: "in fail, line 3 of cell.py"."""
    place = extract_tb(error.__traceback__)[-1]
    return f"in {place.name}, line {place.lineno} of {Path(place.filename).name}"


def background_error_line(lab: Lab) -> str:
    """Return a line on the error that ended the background run; empty if none did."""
    error = lab.background_error
    if error is None:
        return ""
    text = f"an error ended the background run, and its last step was rolled back: {type(error).__name__}: {error}"
    is_kept = lab.crash is not None and lab.crash.exception is error
    return text + ("; %lab goto crash shows the moment before that\n" if is_kept else "\n")


def breakpoint_lines(current: CurrentLab) -> list[str]:
    """Return lines on the breakpoints: those on both sides, then those on one."""
    comparison = current.comparison
    if comparison is None:
        return list(map(str, current.lab.breakpoints))
    paired = {id(one) for both in comparison.breakpoints for one in (both.left, both.right)}
    sides = zip(("left", "right"), current.labs, strict=True)
    alone = [(name, one) for name, lab in sides for one in lab.breakpoints if id(one) not in paired]
    return [*map(str, comparison.breakpoints), *(f"only on the {name} side: {one}" for name, one in alone)]


def stop_lines(current: CurrentLab) -> list[str]:
    """Return lines on the breakpoint that the newest run or step reached, with its side."""
    comparison = current.comparison
    if comparison is None:
        return [] if current.lab.stopped_at is None else [str(current.lab.stopped_at)]
    stops = zip(comparison.names, comparison.stopped_at, strict=True)
    return [f"{name}: {stop}" for name, stop in stops if stop is not None]


def added_line(request_ids: Sequence[int], num_tokens: int) -> str:
    """Return a line on the requests just added."""
    names = ", ".join(f"{request_name(request_id)} (id {request_id})" for request_id in request_ids)
    tokens = counted(num_tokens, "token")
    waiting = f"waits with {tokens}" if len(request_ids) == 1 else f"wait with {tokens} each"
    return f"{names} {waiting}: %lab step, or %lab run"


class InterruptedCommandError(KeyboardInterrupt):
    """A Ctrl-C in a command. IPython shows its sentence and its notes instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self), *getattr(self, "__notes__", ())]


@contextmanager
def interrupt_in_one_line(sentence: Callable[[], str]) -> Iterator[None]:
    """Give a KeyboardInterrupt in the block a sentence instead of its traceback; its notes stay."""
    try:
        yield
    except InterruptedCommandError:
        raise
    except KeyboardInterrupt as interrupt:
        error = InterruptedCommandError(sentence())
        for note in getattr(interrupt, "__notes__", ()):
            error.add_note(note)
        raise error from interrupt


@contextmanager
def errors_in_plain_words(call: str, as_typed: Callable[[str], str] = str) -> Iterator[None]:
    """Turn errors and interrupts in the block into one sentence without a traceback.

    as_typed: puts the words of the command into the message.
    """
    try:
        with interrupt_in_one_line(lambda: f"{call}: interrupted"):
            yield
    except UsageError:
        raise
    except (ConfigError, KeyError, LabClosedError) as error:
        raise UsageError(as_typed(str(error.args[0]))) from error
    except Exception as error:
        text = f"{error or type(error).__name__} ({type(error).__name__} {place_of(error)})"
        raise UsageError(f"{call}: {text}") from error


@contextmanager
def violations_reported(current: CurrentLab) -> Iterator[None]:
    """Print new violations after the block. An exception that a part raised in a step becomes a UsageError."""
    labs = current.labs
    known, crashes = [{*lab.violations} for lab in labs], [lab.crash for lab in labs]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ViolationWarning)  # violation_line prints the same
            yield
    except Exception as error:
        if (crash := _new_crash(labs, crashes)) is not None:
            raise UsageError(
                f"{crash} ({place_of(error)}). The step was rolled back; %lab goto crash shows the moment before "
                f"that, and lab.crash has the exception"
            ) from error
        raise
    finally:
        for lab, before in zip(labs, known, strict=True):
            if found := [one for one in lab.violations if one not in before]:
                print(violation_line(found))


def violation_line(found: Sequence[Violation], ask: str = "%lab why event {}") -> str:
    """Return the number of violations, their rules, and the question about the first: "4 violations (held) ...".

    ask: the question, with {} for the number of the event.
    """
    rules = ", ".join(dict.fromkeys(violation.rule for violation in found))
    number = "1 violation" if len(found) == 1 else f"{len(found)} violations"
    event = found[0].first_event
    hint = "" if event is None else f"; {ask.format(event)} shows how it began"
    return f"{number} ({rules}): {found[0].message}{hint}"


def _new_crash(labs: Sequence[Lab], before: Sequence[Crash | None]) -> Crash | None:
    pairs = zip(labs, before, strict=True)
    return next((lab.crash for lab, known in pairs if lab.crash is not None and lab.crash is not known), None)


def acting_on(name: str, what: str, current: CurrentLab) -> str:
    """Return a sentence on a variable that the commands act on from now on. what: its predicate."""
    acted = f"`{name}` {what}. %lab step, run, back, why ... act on it now, and %lab close ends it"
    return f"{acted}; `lab` stays as it is." if current.has_own_lab else f"{acted}."
