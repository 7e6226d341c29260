"""From the engine's thread to another one: messages in a bounded queue, and a writer's thread that takes them."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from labengine_vllm.files import FileWriter

MAX_QUEUED_EVENTS = 200_000
"""Most waiting events; a keyframe counts as one event per block."""

Message = dict[str, Any]


class Sender:
    """The receiver of a tap's messages: files, or viewers on sockets.

    Putting never blocks; a message that does not fit is refused. One thread puts, another one takes.
    """

    has_audience = False
    """True while a file or a viewer takes the events."""
    wants_keyframe = False
    """True if the engine is asked for a keyframe."""

    def __init__(self, max_events: int = MAX_QUEUED_EVENTS) -> None:
        self.error: Exception | None = None
        """The exception that ended the other thread; nothing is sent after it."""
        self._max_events = max_events
        self._queue: SimpleQueue[tuple[Message, int] | None] = SimpleQueue()
        self._num_put = self._num_taken = 0
        """Numbers of events put and taken, each counted by one thread."""

    def put(self, message: Message, num_events: int) -> bool:
        """Queue a message. Returns False, and does nothing, if too many events wait."""
        if not self.has_room():
            return False
        self._num_put += num_events
        self._queue.put((message, num_events))
        return True

    def has_room(self) -> bool:
        """Return False while too many events wait."""
        return self._num_put - self._num_taken < self._max_events

    def close(self, seconds: float = 2.0) -> None:
        """Send waiting messages for at most `seconds`, as vLLM gives its engine five seconds to shut down."""


class Outbox(Sender):
    """Passes messages to a writer of files on a separate thread."""

    has_audience = True
    """A file wants every event."""

    def __init__(self, writer: FileWriter, max_events: int = MAX_QUEUED_EVENTS) -> None:
        super().__init__(max_events)
        self._writer = writer
        self._thread = Thread(target=self._run, name="labengine-tap", daemon=True)
        self._thread.start()

    @property
    def wants_keyframe(self) -> bool:  # type: ignore[override]
        """True if the next file should begin."""
        return self._writer.wants_keyframe

    def close(self, seconds: float = 2.0) -> None:
        """Write everything, waiting for at most `seconds`."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                message, num_events = item
                self._writer.write(message)
                self._num_taken += num_events
            self._writer.close()
        except Exception as error:
            self.error = error

    def _next(self) -> tuple[Message, int] | None:
        try:
            return self._queue.get(block=False)
        except Empty:
            self._writer.flush()
            return self._queue.get()
