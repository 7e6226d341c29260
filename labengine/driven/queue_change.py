"""Two states of a free queue: at which end, and in which order, blocks entered it in between."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from labengine.events import QueueEnd


class QueueChange:
    """The blocks that entered a queue in one call. Those that were taken again at once left it from its head.

    before, after: the queue, its head first. entering: blocks that entered it. usual_end: the end to assume where the
    states do not show it; afterwards, the one that they last showed. known: pairs of blocks of which the first entered
    earlier.
    """

    def __init__(
        self,
        before: Collection[int],
        after: Sequence[int],
        entering: Collection[int],
        usual_end: QueueEnd,
        known: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._places = {block_id: place for place, block_id in enumerate(after)}
        stayed = [place for place, block_id in enumerate(after) if block_id in before and block_id not in entering]
        self._first_stayed = min(stayed, default=None)
        shown = {self._shown_end(block_id) for block_id in entering} - {None}
        if self._first_stayed is None:
            shown |= {self._end_by(*pair) for pair in known if self._places.keys() >= {*pair}}
        self.usual_end: QueueEnd = "head" if "head" in shown else "tail" if shown else usual_end

    def end_of(self, block_id: int) -> QueueEnd:
        """Return the end at which a block entered."""
        return self._shown_end(block_id) or self.usual_end

    def turn_of(self, block_ids: Sequence[int]) -> float:
        """Return a number that is smaller for blocks that entered the same end earlier; below 0 for the head."""
        queued = [block_id for block_id in block_ids if block_id in self._places]
        if not queued:
            return -0.5 if self.usual_end == "head" else 0.5
        place = self._places[queued[0]] + 1
        return -place if self.end_of(queued[0]) == "head" else place

    def _end_by(self, earlier: int, later: int) -> QueueEnd:
        return "head" if self._places[later] < self._places[earlier] else "tail"

    def _shown_end(self, block_id: int) -> QueueEnd | None:
        place = self._places.get(block_id)
        if place is None or self._first_stayed is None:
            return None
        return "head" if place < self._first_stayed else "tail"
