"""Steps and requests told in a line or two, as the magics print them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from labengine import events as ev

if TYPE_CHECKING:
    from labengine.engine.engine import StepReport
    from labengine.lab import Lab
    from labengine.magics.current_lab import CurrentLab

NOTHING_TO_DO = "nothing to do: no request waits or runs; %%prompt or %lab add adds one"

_BLOCK_VERBS: dict[type[ev.Event], str] = {
    ev.BlockTouched: "found in the cache",
    ev.BlockAllocated: "allocated",
    ev.BlockEvicted: "evicted",
    ev.BlockMerged: "merged away",
}


def name_of(request_id: int) -> str:
    """A, B, C ...: what the dashboard calls a request."""
    from labengine_widgets.names import request_name

    return request_name(request_id)


def report_line(report: StepReport) -> str:
    """A step's report in one line."""
    if not report:
        return NOTHING_TO_DO
    told = [_computed(report.scheduled), *_requests("preempted", report.preempted)]
    told += [f"sampled {_per_request(report.sampled)}"] if report.sampled else []
    told += [*_requests("finished", report.finished), f"peak {_counted(report.peak_used_blocks, 'block')}"]
    return f"step {report.step}: {'; '.join(told)}"


def step_line(step: int, newest: int, events: Sequence[ev.Event]) -> str:
    """A recorded step in one line, told from its events."""
    told = [_computed({e.request_id: e.num_tokens for e in events if isinstance(e, ev.RequestScheduled)})]
    told += _block_counts(events)
    told += _requests("preempted", [e.request_id for e in events if isinstance(e, ev.RequestPreempted)])
    told += _requests("finished", [e.request_id for e in events if isinstance(e, ev.RequestFinished)])
    return f"step {step} of {newest}: {'; '.join(told)} ({_counted(len(events), 'event')})"


def request_lines(lab: Lab, newest: int = 10) -> Iterator[str]:
    """The newest requests: name, id, status, tokens, and the text so far."""
    from labengine_widgets.names import readable

    requests = list(lab.snapshot().requests.items())
    if len(requests) > newest:
        yield f"({_counted(len(requests) - newest, 'earlier request')})"
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
    tokens = _counted(num_tokens, "token")
    waiting = f"waits with {tokens}" if len(request_ids) == 1 else f"wait with {tokens} each"
    return f"{names} {waiting}: %lab step, or %lab run"


def _computed(num_tokens: Mapping[int, int]) -> str:
    if not num_tokens:
        return "no request was scheduled"
    return f"{_counted(sum(num_tokens.values()), 'token')} computed ({_per_request(num_tokens)})"


def _per_request(numbers: Mapping[int, int]) -> str:
    return ", ".join(f"{name_of(request_id)} {number}" for request_id, number in numbers.items())


def _requests(what: str, request_ids: Iterable[int]) -> list[str]:
    names = ", ".join(map(name_of, request_ids))
    return [f"{what} {names}"] if names else []


def _block_counts(events: Sequence[ev.Event]) -> Iterator[str]:
    for kind, verb in _BLOCK_VERBS.items():
        number = sum(isinstance(event, kind) for event in events)
        if number:
            yield f"{_counted(number, 'block')} {verb}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
