"""Which content has which letter: one rule for text and pictures, the order in which a recording brings them."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from weakref import WeakKeyDictionary

from labengine import events as ev
from labengine.fold import Key
from labengine.timeline import Timeline
from labengine_widgets.words.scene import Scene

MAX_WALKED = 200_000
"""Events that are walked through to number what they bring; of a longer recording the newest ones."""


MAX_NUMBERED = 400_000
"""Names of contents that are remembered; of more, those that no block has and that no look-up finds are let go."""


class Lettering:
    """Numbers the contents of one recording as its events come, as a browser does that has all of them.

    Asked from any thread. The first question costs a walk over the recording, a later one what has happened since.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._guard = Lock()
        self._begin(timeline)

    def numbers(self, timeline: Timeline, keys: Iterable[Key]) -> dict[Key, int]:
        """The number of each key, of those that the recording knows; others are left out."""
        with self._guard:
            self._follow(timeline)
            known = ((key, self._contents.number_of_hash(key)) for key in keys)
            return {key: number for key, number in known if number is not None}

    def _begin(self, timeline: Timeline) -> None:
        self._generation, self._moment = timeline.generation, max(timeline.num_dropped, timeline.end - MAX_WALKED)
        self._scene = Scene(timeline.state(self._moment))
        self._contents = self._scene.contents

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
        kept = {self._scene.content(block_id) for block_id in range(len(state.ref_counts))}
        self._contents.forget_all_but(kept | {self._contents.of_hash(key) for key in state.prefix_map})

    def _apply(self, timeline: Timeline, event: ev.Event) -> None:
        """What a step that was taken back has brought keeps its number."""
        if type(event) is ev.StepRolledBack:
            self._scene = Scene(timeline.state(self._moment), contents=self._contents)
            return
        self._scene.apply(event)
        self._contents = self._scene.contents
        if type(event) is ev.StepEnded:
            self._scene.take_changes()
        for block_id in _written(event):
            self._scene.content(block_id)


_known: WeakKeyDictionary[Timeline, Lettering] = WeakKeyDictionary()
_guard = Lock()


def numbers_in(timeline: Timeline, keys: Iterable[Key]) -> dict[Key, int]:
    """The numbers of these keys of the prefix map in a recording, from 0 on in order of appearance."""
    with _guard:
        lettering = _known.get(timeline)
        if lettering is None:
            lettering = _known[timeline] = Lettering(timeline)
    return lettering.numbers(timeline, keys)


def _written(event: ev.Event) -> list[int]:
    """The blocks that an event writes to, in its order: a full one is a content from then on."""
    if isinstance(event, ev.SlotsWritten):
        return [block_id for block_id, _, _ in event.runs]
    return [block_id for _, _, block_id, _ in event.transfers] if isinstance(event, ev.BlocksLoaded) else []
