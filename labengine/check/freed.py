"""The rule `held`, where a step fails because a block is freed again: the request that had given it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from labengine import events as ev
from labengine.check.blame import Blamed
from labengine.check.stream import Stream
from labengine.core.block_pool import FreedTwiceError
from labengine.record.fold import surviving
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation

_ENDS = {"finished": "has finished", "aborted": "was aborted", "preempted": "was preempted"}


def judge_freed_again(
    error: BaseException | None, stream: Stream, timeline: Timeline | None, overrides: str
) -> Iterator[Blamed]:
    """Yield the request that had given a block back, if a step failed because the block was freed again.

    stream: the events up to StepFailed, of this step and the one before; the timeline has all. overrides: as words.
    """
    if isinstance(error, FreedTwiceError):
        events = [one.event for one in stream.newest_events()] if timeline is None else timeline.events()
        freed = (events[i] for i in reversed(surviving(events)))
        for event in freed:
            if isinstance(event, ev.BlockFreed) and event.block_id == error.block_id:
                violation = _violation(event, error.request_id)
                yield Blamed(replace(violation, message=f"{violation.message}{overrides}"), stream.last_number)
                return


def _violation(event: ev.BlockFreed, request_id: int | None) -> Violation:
    """event: gave the block back. request_id: the request for which it is freed again, if known."""
    owner, block_id = event.request_id, event.block_id
    if request_id not in (None, owner):
        text = f"block {block_id} of request {request_id} is free: request {owner} gave it back ({event.reason})"
        return Violation("held", text, (request_id, owner), (block_id,))
    if event.reason in _ENDS:
        text = f"request {owner} {_ENDS[event.reason]}, and its block {block_id} is freed again"
    else:
        text = f"block {block_id}, which request {owner} gave back ({event.reason}), is freed again"
    return Violation("held", text, (owner,), (block_id,))
