"""labengine attach: print, record, serve, or write as a page the files of a tap on vLLM, or a running one."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event

from labengine.config import ConfigError, checked_int
from labengine.record.files.file_access import MAX_BYTES
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.system.ending_signals import EndingSignals
from labengine.vllm.stream.attach import MAX_LIVE_EVENTS, attach
from labengine.vllm.stream.endpoints import endpoints, is_live
from labengine.vllm.stream.files import SUFFIX
from labengine.vllm.stream.listing import listed
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.ranks import attach_ranks
from labengine.vllm.stream.token_texts import token_text_of

MAX_VIOLATIONS = 20
"""Most violations printed, since they tend to be similar."""

Say = Callable[[str], object]


class FullFileError(ConfigError):
    """Raised when a growing file reaches its size limit, which ends the recording."""


class GrowingFile:
    """A stream's file beside `out`, under a free name. Only this user may read it, because it has the prompts.

    max_bytes: the size at which it ends and says so. Raises ConfigError if it cannot be written.
    """

    def __init__(self, out: Path, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        for number in count():
            self.path = out.with_name(f"{out.stem}{f'.{number}' if number else ''}{SUFFIX}")
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                break
            except FileExistsError:  # from a killed recording
                continue
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from None
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def write(self, line: bytes) -> None:
        """Write a line and flush it. Raises FullFileError after the last line that fits."""
        if self._max_bytes is not None and self._num_bytes + len(line) > self._max_bytes:
            why = f"the recording has reached its limit of {self._max_bytes:,} bytes (--max-bytes)"
            self._end(line, why)
            raise FullFileError(why)
        self._file.write(line + b"\n")
        self._num_bytes += len(line) + 1

    def _end(self, line: bytes, why: str) -> None:
        with suppress(ValueError, LookupError, TypeError):  # a header has no number
            message = json.loads(line)
            self._file.write(json.dumps({"n": message["n"], "t": message["t"], "end": why}).encode() + b"\n")

    def close(self, *, is_kept: bool) -> None:
        """Close the file; remove it if a complete recording was saved."""
        self._file.close()
        if not (is_kept and self._num_bytes):
            self.path.unlink(missing_ok=True)


def attach_command(options: Namespace, say: Say) -> None:
    """Run the command. options: place, page, port, record, html, piece, rank, tokenizer, seconds."""
    if is_live(options.place) and options.rank is None and len(engines := listed(options.place)) > 1:
        if options.page:
            _serve_ranks(options, say)
            return
        say("\n".join(engines))
        say("--rank N, or one of these places, attaches to one of them; --page shows them all.")
        return
    if is_live(options.place) and (options.record is not None or options.html is not None):
        _record(options, say)
        return
    if options.max_events is not None or options.max_bytes is not None:
        raise ConfigError("--max-events and --max-bytes are for recording a running vLLM: add --record or --html")
    with attach(options.place, piece=options.piece, rank=options.rank, tokenizer=options.tokenizer) as recording:
        if options.page:
            with EndingSignals() as signals:
                _serve([recording], signals, options, say)
        _write(recording, options)
        _say_what_it_was(recording, say)


def _record(options: Namespace, say: Say) -> None:
    """Record a running vLLM until a signal, its limit or its end (with --page until a signal); write the outputs.

    A dropped terminal may raise on any print, so all files are written before the next message.
    """
    if options.piece is not None:
        raise ConfigError("--piece is only for files; a live stream begins now")
    max_bytes = None if options.max_bytes is None else checked_int("--max-bytes", options.max_bytes, 1)
    max_events = checked_int("--max-events", options.max_events or MAX_LIVE_EVENTS, 1)
    token_text, found = token_text_of(options.tokenizer), endpoints(options.place)
    growing = GrowingFile(Path(options.record if options.record is not None else options.html), max_bytes)
    is_saved = False
    try:
        with (
            EndingSignals() as signals,
            LiveStream.attached(found, options.rank, token_text, max_events, MAX_BYTES, growing.write) as stream,
        ):
            if options.page:
                say(f"recording into {growing.path}")
                _serve([stream], signals, options, say)
            else:
                say(f"{stream.title}\nrecording into {growing.path} until Ctrl-C, or until vLLM ends")
                signals.wait(options.seconds, stream.wait)
            earlier = _write(stream, options)
            is_saved = (
                options.record is not None and not stream.timeline.num_dropped and not stream.reader.num_forgotten
            )
    finally:
        growing.close(is_kept=not is_saved)
    for path in earlier:
        say(f"{path}: a piece that ended at a gap")
    if not is_saved:
        say(f"{growing.path}: the complete stream; `labengine attach {growing.path}` opens it")
    _say_what_it_was(stream, say)


def _say_what_it_was(recording: ViewedRecording, say: Say) -> None:
    say(str(recording))
    say(recording.note)
    for violation in recording.violations[:MAX_VIOLATIONS]:
        say(str(violation))


def _serve_ranks(options: Namespace, say: Say) -> None:
    """Serve all engines of a place side by side."""
    if options.record is not None or options.html is not None:
        raise ConfigError("--record and --html need a single engine: choose it with --rank N")
    with attach_ranks(options.place, tokenizer=options.tokenizer) as ranks, EndingSignals() as signals:
        _serve(ranks.streams, signals, options, say)
        for stream in ranks.streams:
            say(stream.summary())


def _serve(recordings: Sequence[ViewedRecording], signals: EndingSignals, options: Namespace, say: Say) -> None:
    """Serve a page until Ctrl-C or another signal, or for --seconds."""
    from labengine.vllm.stream.page.server import PageServer  # anywidget: for a page only

    with PageServer(recordings, options.port) as server:
        say("\n".join(one.title for one in recordings))
        say(f"{server.address}\nfor a browser on this machine: anyone with the address can view it; Ctrl-C ends it")
        signals.wait(options.seconds, Event().wait)


def _write(recording: ViewedRecording, options: Namespace) -> list[Path]:
    """Write the requested files; return those of earlier pieces."""
    written = []
    if isinstance(recording, LiveStream) and options.record is not None:
        out = Path(options.record)
        for number in recording.pieces[:-1]:
            written.append(out.with_name(f"{out.stem}.piece{number}{out.suffix}"))
            recording.piece(number).save(written[-1])
    if options.record is not None:
        recording.save(options.record)
    if options.html is not None:
        recording.export_html(options.html)
    return written
