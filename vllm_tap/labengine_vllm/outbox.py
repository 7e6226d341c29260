"""A bounded queue from the engine's thread to a writer: putting never blocks, and what does not fit is refused."""

from __future__ import annotations

import json
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol

MAX_QUEUED_EVENTS = 200_000
"""Events that wait for the writer at most; a keyframe counts as one event for each of its blocks."""

Message = dict[str, Any]

try:  # vLLM has msgspec; it encodes five times as fast
    import msgspec

    encoded = msgspec.json.Encoder().encode
except ImportError:

    def encoded(message: Any) -> bytes:
        """Return a message as JSON."""
        return json.dumps(message, separators=(",", ":")).encode()


class Writer(Protocol):
    """Writes messages, on the outbox's thread. Any exception ends the stream."""

    @property
    def wants_keyframe(self) -> bool:
        """True if the next file is to begin: the engine is asked for a keyframe."""

    def write(self, message: Message) -> None:
        """Write one message."""

    def flush(self) -> None:
        """Hand to the system what was written; nothing else waits at the moment."""

    def close(self) -> None:
        """Write what is left, and close."""


class Outbox:
    """Hands messages to a writer on a thread of its own."""

    def __init__(self, writer: Writer, max_events: int = MAX_QUEUED_EVENTS) -> None:
        self._writer, self._max_events = writer, max_events
        self._queue: SimpleQueue[tuple[Message, int] | None] = SimpleQueue()
        self._num_put = self._num_taken = 0
        """Events put by the engine's thread, and events written by the writer's: each has one thread that counts."""
        self.error: Exception | None = None
        """The exception that ended the writer; nothing is written after it."""
        self._thread = Thread(target=self._run, name="labengine-tap", daemon=True)
        self._thread.start()

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

    @property
    def wants_keyframe(self) -> bool:
        """True if the writer asks for a keyframe."""
        return self._writer.wants_keyframe

    def close(self, seconds: float = 2.0) -> None:
        """Have everything written, and wait for it, but not longer: vLLM gives its engine five seconds to shut down."""
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
            return self._queue.get_nowait()
        except Empty:
            self._writer.flush()
            return self._queue.get()
