"""Streams of events as wrong parts emit them: dropped, doubled, swapped, and such as name what is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random

from labengine import events as ev

PLACES = ("block_id", "into_block_id", "request_id", "group", "index")


def damaged(events: Sequence[ev.Event], rng: Random) -> list[ev.Event]:
    """Return the events with one in 25 damaged, but for the engine's start; rollbacks are left out."""
    out = list(events[:1])
    for event in events[1:]:
        how = rng.randrange(100)
        if isinstance(event, ev.StepRolledBack) or how == 0:
            continue
        if how == 1 and len(out) > 1:
            out.insert(-1, event)
        elif how == 2:
            out += [event, event]
        elif how == 3:
            out.append(misplaced(event, rng))
        else:
            out.append(event)
    return out


def misplaced(event: ev.Event, rng: Random) -> ev.Event:
    """Return the event with one of its places replaced by one that is not there."""
    names = [field.name for field in fields(event) if field.name in PLACES]
    changes: dict[str, int] = {rng.choice(names): rng.choice((-1, 77))} if names else {}
    return replace(event, **changes)
