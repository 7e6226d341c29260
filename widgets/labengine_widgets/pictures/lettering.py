"""Numbers of contents, from which their letters derive: the order of appearance in a recording."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from weakref import WeakKeyDictionary

from labengine import events as ev
from labengine.record.fold_state import Key
from labengine.record.timeline import Timeline
from labengine_widgets.words.scene import Scene

MAX_WALKED = 200_000
"""Maximum number of events that are read to number contents; of a longer recording, the newest ones."""


MAX_NUMBERED = 400_000
"""Numbered contents to keep; beyond that, those that no block holds and no look-up finds are forgotten."""


class Lettering:
    """Numbers the contents of one recording in the order of its events, as a browser with all events does.

    Any thread may call it. The first call reads the whole recording, a later one the events since.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._guard = Lock()
        self._begin(timeline)

    def numbers(self, timeline: Timeline, keys: Iterable[Key]) -> dict[Key, int]:
        """Return the number of each key that the recording knows; others are left out."""
        with self._guard:
            self._follow(timeline)
            known = ((key, self._contents.number_of_hash(key)) for key in keys)
            return {key: number for key, number in known if number is not None}

    def _begin(self, timeline: Timeline) -> None:
        self._generation, self._moment = timeline.generation, max(timeline.num_dropped, timeline.end - MAX_WALKED)
        self._scene = Scene(timeline.state(self._moment))
        self._contents = self._scene.filling.contents

    def _follow(self, timeline: Timeline) -> None:
        if self._generation != timeline.generation or self._moment < timeline.num_dropped:
            self._begin(timeline)
        for event in timeline.events(self._moment):
            self._moment += 1
            self._apply(timeline, event)
        if len(self._contents) > MAX_NUMBERED:
            self._forget()

    def _forget(self) -> None:
        state = self._scene.fold
        kept = {self._scene.filling.content(block_id) for block_id in range(len(state.ref_counts))}
        self._contents.forget_all_but(kept | {self._contents.of_hash(key) for key in state.prefix_map})

    def _apply(self, timeline: Timeline, event: ev.Event) -> None:
        """Number the contents in these events; those of a rolled-back step keep their numbers."""
        if type(event) is ev.StepRolledBack:
            self._scene = Scene(timeline.state(self._moment), contents=self._contents)
            return
        self._scene.apply(event)
        self._contents = self._scene.filling.contents
        if type(event) is ev.StepEnded:
            self._scene.update()
        for block_id in _written(event):
            self._scene.filling.content(block_id)


_known: WeakKeyDictionary[Timeline, Lettering] = WeakKeyDictionary()
_guard = Lock()


def numbers_in(timeline: Timeline, keys: Iterable[Key]) -> dict[Key, int]:
    """Return the numbers of these prefix-map keys in a recording, from 0 in order of appearance."""
    with _guard:
        lettering = _known.get(timeline)
        if lettering is None:
            lettering = _known[timeline] = Lettering(timeline)
    return lettering.numbers(timeline, keys)


def _written(event: ev.Event) -> list[int]:
    """Return the blocks that an event writes to, in its order: a full one has a content from then on."""
    if isinstance(event, ev.SlotsWritten):
        return [block_id for block_id, _, _ in event.runs]
    if isinstance(event, ev.StateAdvanced):
        return [event.block_id]
    return [block_id for _, _, block_id, _ in event.transfers] if isinstance(event, ev.BlocksLoaded) else []
