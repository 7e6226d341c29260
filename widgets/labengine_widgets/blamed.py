"""Where two recordings part in a violation: not the report of it is the difference, but the event that made it so."""

from __future__ import annotations

from collections.abc import Sequence

from labengine import events as ev
from labengine.timeline import Timeline
from labengine_widgets.alignment import aligned

Numbers = tuple[int | None, int | None]
"""An event of the left recording and one of the right, by their numbers; None where a side has no such event."""


def blamed(timelines: Sequence[Timeline], numbers: Numbers, shift: int = 0) -> Numbers:
    """The same numbers; for a ViolationFound the event that it names, and that event's like on the other side."""
    for side, number in enumerate(numbers):
        first = _first_event(timelines[side], number)
        if first is not None:
            like = _like(timelines, side, first, shift)
            return (first, like) if side == 0 else (like, first)
    return numbers


def _first_event(timeline: Timeline, number: int | None) -> int | None:
    """The event that a ViolationFound names, where it is still recorded; None for any other event."""
    event = None if number is None else timeline.events(number, number + 1)[0]
    if not isinstance(event, ev.ViolationFound) or event.first_event is None:
        return None
    return event.first_event if event.first_event >= timeline.num_dropped else None


def _like(timelines: Sequence[Timeline], side: int, number: int, shift: int) -> int | None:
    """The other side's event in the same place of the same beat."""
    left, right = timelines
    before = (left.num_dropped, right.num_dropped)
    for pair in aligned(left.events(), right.events(), before, shift):
        if number < pair.ends[side]:
            like = before[1 - side] + number - before[side]
            return like if like < pair.ends[1 - side] else None
        before = pair.ends
    return None
