"""A step as one line of text, from its report or from its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from labengine import events as ev
from labengine.engine.step_report import StepReport
from labengine.record.wording import counted, request_name

NOTHING_TO_DO = "nothing to do: no request is waiting or running; add one with %%prompt or %lab add"

_BLOCK_VERBS = {
    "BlockTouched": "found in the cache",
    "BlockTouched:fork": "shared with a fork",
    "BlockAllocated": "allocated",
    "BlockCopied": "copied",
    "BlockEvicted": "evicted",
    "BlockMerged": "merged away",
}


def report_line(report: StepReport) -> str:
    """Return a step's report as one line."""
    if not report:
        return NOTHING_TO_DO
    pieces = [_computed(report.scheduled), *_requests("preempted", report.preempted)]
    pieces += [f"sampled {_sampled(report)}"] if report.sampled else []
    pieces += [f"drafts {_judged(report)}"] if report.drafted else []
    pieces += [*_requests("finished", report.finished), f"peak {counted(report.peak_used_blocks, 'block')}"]
    return f"step {report.step}: {'; '.join(pieces)}"


def played_line(report: StepReport) -> str:
    """Return a report's step and finished requests, without the changes that a dashboard plays."""
    if not report:
        return NOTHING_TO_DO
    finished = "; ".join(_requests("finished", report.finished))
    return f"step {report.step}: {finished}" if finished else f"step {report.step}"


def step_line(step: int, newest: int, events: Sequence[ev.Event]) -> str:
    """Return a recorded step as one line, from its events."""
    pieces = [_computed({e.request_id: e.num_tokens for e in events if isinstance(e, ev.RequestScheduled)})]
    pieces += _block_counts(events)
    pieces += _requests("preempted", [e.request_id for e in events if isinstance(e, ev.RequestPreempted)])
    pieces += _requests("finished", [e.request_id for e in events if isinstance(e, ev.RequestFinished)])
    return f"step {step} of {newest}: {'; '.join(pieces)} ({counted(len(events), 'event')})"


def _computed(num_tokens: Mapping[int, int]) -> str:
    if not num_tokens:
        return "no request was scheduled"
    return f"{counted(sum(num_tokens.values()), 'token')} computed ({_per_request(num_tokens)})"


def _per_request(numbers: Mapping[int, int]) -> str:
    return ", ".join(f"{request_name(request_id)} {number}" for request_id, number in numbers.items())


def _sampled(report: StepReport) -> str:
    return ", ".join(f"{request_name(i)} {' '.join(map(str, tokens))}" for i, tokens in report.sampled.items())


def _judged(report: StepReport) -> str:
    accepted = report.accepted.items()
    return ", ".join(f"{request_name(i)} {number} of {report.drafted[i]} accepted" for i, number in accepted)


def _requests(what: str, request_ids: Iterable[int]) -> list[str]:
    names = ", ".join(map(request_name, request_ids))
    return [f"{what} {names}"] if names else []


def _block_counts(events: Sequence[ev.Event]) -> Iterator[str]:
    verbs = Counter(ev.entry_of(_BLOCK_VERBS, event) for event in events)
    for verb in _BLOCK_VERBS.values():
        if number := verbs[verb]:
            yield f"{counted(number, 'block')} {verb}"
