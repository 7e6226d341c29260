"""Requests, stops and errors in a line or two, as the magics print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from IPython import display as ipython
from IPython.core.error import UsageError

from labengine.config import ConfigError
from labengine.lab import Lab
from labengine.magics.current_lab import CurrentLab
from labengine.session.step_text import counted, name_of
from labengine.session.stepper import LabClosedError


def display(thing: object) -> None:
    """Show a widget or a record below the cell."""
    ipython.display(thing)  # type: ignore[no-untyped-call]  # IPython has no types for it


def request_lines(lab: Lab, newest: int = 10) -> Iterator[str]:
    """Yield the newest requests: name, id, status, tokens, and the text so far."""
    from labengine_widgets.names import readable

    requests = list(lab.snapshot().requests.items())
    if len(requests) > newest:
        yield f"({counted(len(requests) - newest, 'earlier request')})"
    for request_id, request in requests[-newest:]:
        output = lab.output(request_id)
        status = request.status if output.finish_reason is None else f"{request.status} ({output.finish_reason})"
        tokens = f"{request.num_prompt_tokens} + {len(output.token_ids)} tokens"
        yield f"{name_of(request_id)} (id {request_id})  {status}, {tokens}  {readable(output.text, 60)}".rstrip()


def place_of(error: BaseException) -> str:
    """Where an error was raised: "in fail, line 3 of cell.py"."""
    place = extract_tb(error.__traceback__)[-1]
    return f"in {place.name}, line {place.lineno} of {Path(place.filename).name}"


def background_error_line(lab: Lab) -> str:
    """What ended the background's run, if it was an error; else nothing."""
    error = lab.background_error
    if error is None:
        return ""
    told = f"an error ended the background run, and its last step was taken back: {type(error).__name__}: {error}"
    is_kept = lab.crash is not None and lab.crash.exception is error
    return told + ("; %lab goto crash looks at the moment before that\n" if is_kept else "\n")


def breakpoint_lines(current: CurrentLab) -> list[str]:
    """What is waited for: on both sides, and on one of them."""
    comparison = current.comparison
    if comparison is None:
        return list(map(str, current.lab.breakpoints))
    paired = {id(one) for both in comparison.breakpoints for one in (both.left, both.right)}
    sides = zip(("left", "right"), current.labs, strict=True)
    alone = [(name, one) for name, lab in sides for one in lab.breakpoints if id(one) not in paired]
    return [*map(str, comparison.breakpoints), *(f"on the {name} side alone: {one}" for name, one in alone)]


def stop_lines(current: CurrentLab) -> list[str]:
    """Where the newest run or step has met a breakpoint, and on which side."""
    comparison = current.comparison
    if comparison is None:
        return [] if current.lab.stopped_at is None else [str(current.lab.stopped_at)]
    stops = zip(comparison.names, comparison.stopped_at, strict=True)
    return [f"{name}: {stop}" for name, stop in stops if stop is not None]


def added_line(request_ids: Sequence[int], num_tokens: int) -> str:
    """Who waits now."""
    names = ", ".join(f"{name_of(request_id)} (id {request_id})" for request_id in request_ids)
    tokens = counted(num_tokens, "token")
    waiting = f"waits with {tokens}" if len(request_ids) == 1 else f"wait with {tokens} each"
    return f"{names} {waiting}: %lab step, or %lab run"


@contextmanager
def told_plainly(call: str) -> Iterator[None]:
    """What goes wrong inside becomes a UsageError: a sentence for the user, without a traceback."""
    try:
        yield
    except UsageError:
        raise
    except (ConfigError, KeyError, LabClosedError) as error:
        raise UsageError(str(error.args[0])) from error
    except Exception as error:
        told = f"{error or type(error).__name__} ({type(error).__name__} {place_of(error)})"
        raise UsageError(f"{call}: {told}") from error
