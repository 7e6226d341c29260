"""A running vLLM as a growing recording: every view follows it, and can scrub back meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from os import PathLike
from threading import RLock, Thread, current_thread
from time import monotonic
from typing import Any

from labengine.config import ConfigError, checked_int
from labengine.engine.interrupts import interrupts_deferred
from labengine.record.files.file import packed, run_of, save
from labengine.record.files.file_access import Limits
from labengine.record.files.parsing import TraceError
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.record.wording import readable
from labengine.session.reasons import Seam
from labengine.session.saved.trace import Trace, checked_seams
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.view_source import refused
from labengine.system.atomic_write import only_for_the_user
from labengine.vllm.stream.connection import Connection
from labengine.vllm.stream.description import IS_LIVE, facts_of, note_of, title_of
from labengine.vllm.stream.endpoints import Endpoint
from labengine.vllm.stream.listing import one_of
from labengine.vllm.stream.reader import MAX_FINISHED, LiveReader
from labengine.vllm.stream.token_texts import TokenText

SECONDS_FOR_KEYFRAME = 30.0
"""Seconds that an engine may take to send its state, as a step may be long."""

SECONDS_OF_A_RUN = 1.0
"""Seconds without an event after which an engine counts as idle, and the views show its last step."""

LOST = "The connection closed before the stream's end: vLLM was killed, or a tunnel was closed."


REFUSAL = "this is vLLM's own scheduler, which steps by itself, driven only by its requests"


class LiveViewSource:
    """A labengine_widgets.ViewSource for a LiveStream."""

    phase: str | None = None
    stopped: str | None = None
    asked: dict[str, Any] | None = None
    request_options: tuple[str, ...] = ()

    def __init__(self, stream: LiveStream, lab: str) -> None:
        self.lab = lab
        self.hooks: Hooks | None = stream.reader.hooks
        self.timeline: Timeline | None = stream.timeline
        self._stream = stream

    @property
    def title(self) -> str:
        """Engine, rank, model and pool; and the piece, after a gap."""
        return self._stream.title

    @property
    def note(self) -> str:
        """Text instead of the controls: that it is live, and where it begins or ends."""
        return self._stream.note

    @property
    def is_live(self) -> bool:
        """True while the stream may bring events."""
        return self._stream.is_connected

    @property
    def is_running(self) -> bool:
        """True while events come."""
        return self._stream.is_running

    def fold(self) -> Fold:
        """Return a copy of the present state."""
        return self._stream.fold()

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self._stream.token_text(token_id)

    def engine_id(self, request_id: int) -> str:
        """Return vLLM's own id of a request."""
        return self._stream.engine_id(request_id)

    def seams(self) -> dict[str, Seam]:
        """Return vLLM's method that decides each kind of event."""
        return self._stream.seams

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Refuse the command; return a Future with the error."""
        return refused(action, REFUSAL)


class LiveStream(ViewedRecording):
    """The stream of a running vLLM: show(), view(...), why(...), save(...) as a Trace. It grows until close().

    timeline: the newest piece, which starts over after a gap. A separate thread reads the stream.
    """

    def __init__(
        self, connection: Connection, reader: LiveReader, lines: Iterator[bytes], token_text: TokenText
    ) -> None:
        self.reader, self._token_text = reader, token_text
        self.is_connected = True
        """False once the stream has ended, for whatever reason."""
        self._connection, self._lines = connection, lines
        self._guard = RLock()
        self._newest_event = monotonic()
        self._end_note = ""
        """A sentence on the stream's end if the stream itself has none."""
        self._describe()
        self.seams: dict[str, Seam] = checked_seams(self.facts)
        super().__init__(reader.timeline, self.held_still)
        self._thread = Thread(target=self._read, name="labengine-attached", daemon=True)
        self._thread.start()

    @classmethod
    def attached(
        cls,
        found: Sequence[Endpoint],
        rank: int | None,
        token_text: TokenText,
        max_events: int,
        max_bytes: int,
        on_line: Callable[[bytes], object] = lambda line: None,
    ) -> LiveStream:
        """Attach to one of these endpoints. on_line: called with each line before it is read.

        Raises ConfigError if none answers, or if several do and rank does not choose one.
        """
        connection = one_of(found, rank)
        try:
            reader, lines = (
                LiveReader(connection.place, Timeline(max_events), Hooks(), max_bytes, MAX_FINISHED),
                _noted(connection.lines(), on_line),
            )
            _read_keyframe(connection, reader, lines)
            return cls(connection, reader, lines, token_text)
        except BaseException:
            connection.close()
            raise

    # -- the recording -------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True while events come."""
        return self.is_connected and monotonic() - self._newest_event < SECONDS_OF_A_RUN

    @property
    def pieces(self) -> range:
        """The numbers of the kept pieces, each ended by a gap or a contradiction. The last one still grows."""
        return range(self.reader.num_forgotten + 1, self.reader.newest + 1)

    def piece(self, number: int) -> Trace:
        """Return the present content of a piece as a complete recording. Raises ConfigError for one not kept."""
        number = checked_int("number", number, self.pieces[0], self.pieces[-1])
        limits = Limits(self._connection.place)
        with self.held_still():
            note = note_of(self.reader, number, end=self._end_note or "It was still growing.")
            raw = packed(self.reader.piece(number).timeline, facts_of(self.reader, number, note), self.token_text)
        return Trace(run_of(raw, limits))

    @property
    def request_names(self) -> dict[int, str]:
        """Names of the requests in vLLM, by request id."""
        with self.held_still():
            return {number: readable(name) for number, name in self.reader.names.items()}

    def engine_id(self, request_id: int) -> str:
        """Return vLLM's id of a request; empty for one that is long gone."""
        return readable(self.reader.names.get(request_id, ""))

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self._token_text(checked_int("token_id", token_id))

    def check(self) -> None:
        """Ask the engine for its state; a contradiction to the events becomes a violation and begins a new piece."""
        self._connection.ask_for_keyframe()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the newest piece's present content to a file for labengine.open. TraceError if it cannot be written."""
        with self.held_still():
            number = self.reader.newest
            note = note_of(self.reader, number, end=self._end_note or "It was still growing.")
            with only_for_the_user():
                save(path, self.timeline, facts_of(self.reader, number, note), self.token_text)

    def view_source(self) -> LiveViewSource:
        """Return the views' interface to this stream (a labengine_widgets.ViewSource)."""
        return LiveViewSource(self, self._lab)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the stream has ended. Returns False if it has not after `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Disconnect from the engine, and close the views; the recording stays readable. Twice is harmless."""
        self._end_note = self._end_note or "It was disconnected here."
        self._connection.close()
        if self._thread is not current_thread():
            self._thread.join(2.0)
        super().close()

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """Stop new events in the `with` block."""
        with interrupts_deferred(), self._guard:
            yield

    # -- the reading thread --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for line in self._lines:
                with self._guard:
                    self._newest_event = monotonic()
                    known = self.reader.newest, self.reader.gap
                    self.reader.take(line)
                    if known != (self.reader.newest, self.reader.gap):
                        self._describe()
        except (TraceError, ConfigError, OSError, MemoryError) as error:
            self._end_note = self._end_note or f"Reading it failed: {error}."
        finally:
            self._end()

    def _end(self) -> None:
        self._connection.close()
        self._end_note = self._end_note or LOST
        self.is_connected = False
        with self._guard:
            self._describe()

    def _describe(self) -> None:
        number = self.reader.newest
        self.title = title_of(self.reader, number)
        first = {"first": IS_LIVE} if self.is_connected else {}
        self.note = note_of(self.reader, number, end=self._end_note, **first)
        self.facts = facts_of(self.reader, number, self.note)


def _noted(lines: Iterator[bytes], on_line: Callable[[bytes], object]) -> Iterator[bytes]:
    for line in lines:
        on_line(line)
        yield line


def _read_keyframe(connection: Connection, reader: LiveReader, lines: Iterator[bytes]) -> None:
    """Read up to the engine's state. Raises ConfigError if it does not come."""
    connection.wait_at_most(SECONDS_FOR_KEYFRAME)
    try:
        while not reader.pieces:
            reader.take(next(lines))
    except TimeoutError:
        raise ConfigError(
            f"{connection.place} answers, but vLLM has not sent its state within {SECONDS_FOR_KEYFRAME:g} s: "
            "it may be in a long step; attach again"
        ) from None
    except StopIteration:
        raise ConfigError(f"{connection.place} closed the connection: vLLM has ended or is no longer tapped") from None
    connection.wait_at_most(None)
