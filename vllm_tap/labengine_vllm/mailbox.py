"""A bounded queue from the engine's thread to another one: putting never blocks, and what does not fit is refused."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

MAX_QUEUED_EVENTS = 200_000
"""Events that wait at most; a keyframe counts as one event for each of its blocks."""

Message = dict[str, Any]


class Mailbox:
    """Messages in their order, and None at the end. One thread puts, another one takes."""

    def __init__(self, max_events: int = MAX_QUEUED_EVENTS) -> None:
        self._max_events = max_events
        self._queue: SimpleQueue[tuple[Message, int] | None] = SimpleQueue()
        self._num_put = self._num_taken = 0
        """Events put and events taken: each has one thread that counts."""

    def put(self, message: Message, num_events: int) -> bool:
        """Queue a message. Returns False, and does nothing, when too many events wait."""
        if not self.has_room():
            return False
        self._num_put += num_events
        self._queue.put((message, num_events))
        return True

    def has_room(self) -> bool:
        """Return False while too many events wait."""
        return self._num_put - self._num_taken < self._max_events

    def end(self) -> None:
        """Queue the end."""
        self._queue.put(None)

    def get(self, *, block: bool) -> tuple[Message, int] | None:
        """Return the next message and its number of events, None at the end. Raises Empty without one to take now."""
        return self._queue.get(block)

    def taken(self, num_events: int) -> None:
        """Count events as taken, once they were dealt with."""
        self._num_taken += num_events
