"""labengine attach: print, record, serve, or write as a page what a tap on vLLM has written, or what it does now."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from labengine.config import ConfigError
from labengine.session.saved.recording import ViewedRecording
from labengine.stream.attach import attach
from labengine.stream.endpoints import is_live
from labengine.stream.listing import listed
from labengine.stream.live import LiveStream
from labengine.stream.ranks import attach_ranks

MAX_VIOLATIONS = 20
"""Violations printed at most; they tend to be alike."""

Say = Callable[[str], object]


def attach_command(options: Namespace, say: Say) -> None:
    """Run the command. options: place, page, port, record, html, piece, rank, tokenizer, seconds."""
    if is_live(options.place) and options.rank is None and len(engines := listed(options.place)) > 1:
        if options.page:
            _serve_ranks(options, say)
            return
        say("\n".join(engines))
        say("--rank N attaches to one of them, and so does one of these places; --page shows all of them.")
        return
    with attach(options.place, piece=options.piece, rank=options.rank, tokenizer=options.tokenizer) as recording:
        wants_file = options.record is not None or options.html is not None
        if options.page:
            _serve([recording], options, say)
        elif isinstance(recording, LiveStream) and wants_file:
            _follow(recording, options.seconds, say)
        _write(recording, options, say)
        say(str(recording))
        say(recording.note)
        for violation in recording.violations[:MAX_VIOLATIONS]:
            say(str(violation))


def _serve_ranks(options: Namespace, say: Say) -> None:
    """Serve all engines of a place side by side."""
    if options.record is not None or options.html is not None:
        raise ConfigError("--record and --html are for one engine: --rank N names it")
    with attach_ranks(options.place, tokenizer=options.tokenizer) as ranks:
        _serve(ranks.streams, options, say)
        for stream in ranks.streams:
            say(stream.summary())


def _serve(recordings: Sequence[ViewedRecording], options: Namespace, say: Say) -> None:
    """Serve a page until Ctrl-C, or until so many seconds have passed."""
    from labengine.stream.page.server import PageServer  # anywidget: for a page only

    with PageServer(recordings, options.port) as server:
        say("\n".join(one.title for one in recordings))
        say(f"{server.address}\nfor browsers on this machine: whoever has the address can look; Ctrl-C ends it")
        try:
            Event().wait(options.seconds)
        except KeyboardInterrupt:
            say("")


def _follow(stream: LiveStream, seconds: float | None, say: Say) -> None:
    """Record until Ctrl-C, the end of the stream, or so many seconds have passed."""
    say(f"{stream.title}\nrecording until Ctrl-C, or until vLLM ends")
    try:
        stream.wait(seconds)
    except KeyboardInterrupt:
        say("")


def _write(recording: ViewedRecording, options: Namespace, say: Say) -> None:
    if isinstance(recording, LiveStream) and options.record is not None:
        out = Path(options.record)
        for number in recording.pieces[:-1]:
            earlier = out.with_name(f"{out.stem}.piece{number}{out.suffix}")
            recording.piece(number).save(earlier)
            say(f"{earlier}: piece {number}, which ended at a gap")
    if options.record is not None:
        recording.save(options.record)
    if options.html is not None:
        recording.export_html(options.html)
