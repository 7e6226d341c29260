"""From the engine's thread to a writer's: messages to files, on a thread of their own."""

from __future__ import annotations

from queue import Empty
from threading import Thread
from typing import Protocol

from labengine_vllm.mailbox import MAX_QUEUED_EVENTS, Mailbox, Message


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

    has_audience = True
    """A file wants every event."""

    def __init__(self, writer: Writer, max_events: int = MAX_QUEUED_EVENTS) -> None:
        self._writer, self._mailbox = writer, Mailbox(max_events)
        self.error: Exception | None = None
        """The exception that ended the writer; nothing is written after it."""
        self._thread = Thread(target=self._run, name="labengine-tap", daemon=True)
        self._thread.start()

    def put(self, message: Message, num_events: int) -> bool:
        """Queue a message. Returns False, and does nothing, when too many events wait."""
        return self._mailbox.put(message, num_events)

    def has_room(self) -> bool:
        """Return False while too many events wait."""
        return self._mailbox.has_room()

    @property
    def wants_keyframe(self) -> bool:
        """True if the writer asks for a keyframe."""
        return self._writer.wants_keyframe

    def close(self, seconds: float = 2.0) -> None:
        """Have everything written, and wait for it, but not longer: vLLM gives its engine five seconds to shut down."""
        self._mailbox.end()
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (item := self._next()) is not None:
                message, num_events = item
                self._writer.write(message)
                self._mailbox.taken(num_events)
            self._writer.close()
        except Exception as error:
            self.error = error

    def _next(self) -> tuple[Message, int] | None:
        try:
            return self._mailbox.get(block=False)
        except Empty:
            self._writer.flush()
            return self._mailbox.get(block=True)
