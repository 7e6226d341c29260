"""Runs of events: neighbours that belong together share one caption, and each merged block has its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from labengine import events as ev

MAX_SINGLES = 4
"""Up to this many blocks or nodes cached, merged or evicted in a row get a caption each; more of them get one."""

MAX_FRAMES = 240
"""Maximum number of runs in a step; with more, neighbours are combined under the last one's caption."""

PHASES = ("schedule", "forward", "sample", "update")


class Run(NamedTuple):
    """The events of one caption: `captioned` ones that it describes, after `silent` ones that only change the state."""

    silent: tuple[ev.Event, ...]
    captioned: tuple[ev.Event, ...]

    @property
    def events(self) -> tuple[ev.Event, ...]:
        """All events of the run, in order."""
        return self.silent + self.captioned


def runs(events: Iterable[ev.Event]) -> list[Run]:
    """Divide events into runs, in order."""
    found: list[Run] = []
    silent: tuple[ev.Event, ...] = ()
    for _, group in groupby(events, _kinship):
        together = tuple(group)
        if isinstance(together[0], ev.TokensComputed):
            silent += together
            continue
        for captioned in _pieces(together):
            found.append(Run(silent, captioned))
            silent = ()
    if silent:
        found.append(Run((), silent))
    return at_most(MAX_FRAMES, found)


def _kinship(event: ev.Event) -> tuple[object, ...]:
    """Return a key: neighbours with equal keys belong to one run."""
    match event:
        case ev.BlockCopied(is_pinned=True) | ev.BlockCached(is_full=False):
            return (id(event),)
        case ev.BlockFreed(reason=reason) if reason in ev.ENTRY_REPLACED:
            return f"Block{reason.title()}", event.request_id, event.group
        case _ if isinstance(event, ev.EntryReplaced):
            return type(event).__name__, event.request_id, event.group
        case ev.BlockFreed():
            return "free", event.request_id, event.reason
        case ev.NodeInserted():
            return "BlockCached", event.request_id, event.group
        case ev.NodeEvicted():
            return ("BlockEvicted",)
        case ev.NodeLocked() | ev.NodeUnlocked():
            return "NodeLocked", event.request_id
        case ev.BlockAllocated() | ev.BlockTouched() | ev.BlockCached():
            return type(event).__name__, event.request_id, event.group
        case ev.BlockUnpinned():
            return type(event).__name__, event.queue_end is None
        case ev.RequestAdded():
            return type(event).__name__, event.from_request_id, event.num_generated, event.priority, event.num_beams
        case ev.BlockPinned() | ev.RequestForgotten() | ev.BlockEvicted() | ev.TokensComputed():
            return (type(event).__name__,)
        case ev.RequestScheduled() | ev.TokenSampled():
            return (type(event).__name__,)
        case ev.ViolationFound():
            return type(event).__name__, event.rule
        case _:
            return (id(event),)


def by_block(together: tuple[ev.Event, ...]) -> list[tuple[ev.Event, ...]]:
    """Split a row of cached or merged blocks into one piece per block, each with the free after it.

    Nodes of the prefix tree are not split into their blocks.
    """
    is_tree = isinstance(together[0], ev.NodeInserted | ev.NodeEvicted)
    kinds = ev.NodeInserted | ev.NodeEvicted if is_tree else ev.BlockCached | ev.EntryReplaced
    starts = [i for i, event in enumerate(together) if isinstance(event, kinds)]
    if not starts or starts[0]:
        return [together]
    return [together[start:stop] for start, stop in zip(starts, [*starts[1:], len(together)], strict=True)]


def _pieces(together: tuple[ev.Event, ...]) -> list[tuple[ev.Event, ...]]:
    """Split a short row of cached or merged blocks; leave any other together."""
    pieces = by_block(together)
    return pieces if len(pieces) <= MAX_SINGLES else [together]


def at_most(limit: int, found: Sequence[Run]) -> list[Run]:
    """Combine neighbours until there are at most so many runs; a combined run has the last one's caption."""
    size = -(-len(found) // limit) or 1
    return [_together(found[i : i + size]) for i in range(0, len(found), size)]


def _together(chunk: Sequence[Run]) -> Run:
    *others, last = chunk
    return Run(tuple(event for run in others for event in run.events) + last.silent, last.captioned)
