"""A recording cut into acts: what came from outside the scheduler, and the events that answered it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from labengine import events as ev
from labengine.vllm.stream.pieces import Piece

MARKS = (ev.EngineStarted, ev.StepStarted, ev.StepEnded)
"""Events that no part decides: both sides have them at the same place."""

FACTS = ("salt", "arrival", "unread", "links")
"""Inputs that call nothing: they say something of a request."""


@dataclass(slots=True)
class Act:
    """One call from outside, and the events up to the next one. start: the number of the first of them.

    words: add, schedule, update, abort, reset; mark (an event of MARKS); earlier and unusual as in
    pieces.RecordedInput.
    """

    word: str
    values: tuple[Any, ...]
    start: int
    events: list[ev.Event] = field(default_factory=list)


def acts_of(piece: Piece) -> Iterator[Act]:
    """Yield the acts of a piece in order. Events that answer no call come as an act with the word `unasked`."""
    waiting, act = deque(one for one in piece.inputs if one.word not in FACTS), Act("unasked", (), 0)
    for number, event in enumerate(piece.timeline.events(), piece.timeline.num_dropped):
        while waiting and waiting[0].moment <= number:
            yield act
            called = waiting.popleft()
            act = Act(called.word, called.values, number)
        if isinstance(event, ev.RequestAdded):
            yield act
            act = Act("add", (event,), number)
        elif isinstance(event, MARKS):
            yield act
            yield Act("mark", (event,), number)
            act = Act("unasked", (), number + 1)
        else:
            act.events.append(event)
    yield act
    yield from (Act(called.word, called.values, called.moment) for called in waiting)
