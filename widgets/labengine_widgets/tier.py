"""What the external tier is known to hold, by what a recording tells of saves and loads."""

from __future__ import annotations

from labengine import events as ev
from labengine.fold import Key
from labengine.timeline import Timeline

_TELLING: tuple[type[ev.BlocksSaved | ev.BlocksLoaded], ...] = (ev.BlocksSaved, ev.BlocksLoaded)


def kept_contents(timeline: Timeline | None, until: int | None = None) -> list[Key]:
    """The contents that were saved or loaded before a moment, in the order in which they came to be known."""
    if timeline is None:
        return []
    told = timeline.of_kind(_TELLING, stop=until)
    return list(dict.fromkeys((group, block_hash) for event in told for group, _, _, block_hash in event.transfers))
