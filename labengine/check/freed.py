"""The rule `held`, where a step fails because a block is freed again: the request that had given it back."""

from __future__ import annotations

from collections.abc import Iterator

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
                text = f"{_given_back(event)} is freed again{overrides}"
                violation = Violation("held", text, (event.request_id,), (event.block_id,))
                yield Blamed(violation, stream.last_number)
                return


def _given_back(event: ev.BlockFreed) -> str:
    if event.reason in _ENDS:
        return f"request {event.request_id} {_ENDS[event.reason]}, and its block {event.block_id}"
    return f"block {event.block_id}, which request {event.request_id} gave back ({event.reason}),"
