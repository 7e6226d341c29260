"""Follow the KV events of a running engine, or read a file of them: a cache-only view, without the tap."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from json import dumps
from os import PathLike, fspath
from pathlib import Path

from labengine.config import ConfigError, checked_int
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.wording import spelled
from labengine.session.settings import refuse_unknown
from labengine.system.ending_signals import EndingSignals
from labengine.vllm.cache_events.document import TokensText, numbers_text
from labengine.vllm.cache_events.kv_files import RecordedEvents
from labengine.vllm.cache_events.live import LivePrefixes
from labengine.vllm.cache_events.places import file_of, publishers
from labengine.vllm.cache_events.prefixes import CachedPrefixes
from labengine.vllm.cache_events.stream import MAX_BLOCKS, EventStream
from labengine.vllm.stream.token_texts import token_text_of

MAX_SECONDS = 600.0


def kv_events(
    place: str | PathLike[str],
    *,
    replay: str | None = None,
    topic: str = "",
    record: str | PathLike[str] | None = None,
    tokenizer: str | PathLike[str] | None = None,
    max_blocks: int = MAX_BLOCKS,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> CachedPrefixes:
    """Follow the KV events published by vLLM or SGLang, or read a file of them: which prefixes are cached where.

    place: tcp://HOST:PORT or ipc://PATH, several separated by commas, with bind: before one to which the engine
    connects; or a file. replay: the replay endpoint of each. topic: the prefix of messages. record: a new file for all
    messages. tokenizer: a model's directory or name, for the text of tokens. max_blocks: contents that are kept.
    max_bytes, max_seconds: for opening a file. Raises ConfigError or, for a damaged file, TraceError.
    """
    refuse_unknown("kv_events()", unknown, kv_events)
    max_blocks = checked_int("max_blocks", max_blocks, 1)
    text_of = _text_of(tokenizer)
    path = file_of(fspath(place))
    if path is None:
        return LivePrefixes.attached(publishers(fspath(place), replay), topic, record, text_of, max_blocks)
    if replay is not None or record is not None:
        raise ConfigError("replay and record are for a running engine; a file already has all its batches")
    return _opened(path, Limits(path, max_bytes, max_seconds), text_of, max_blocks)


def _opened(path: Path, limits: Limits, text_of: TokensText, max_blocks: int) -> CachedPrefixes:
    recorded = RecordedEvents(path, limits)
    stream = EventStream(recorded.sources, max_blocks=max_blocks)
    for message in recorded.messages():
        stream.take(message)
    note = "the file ends in the middle of a line: its writer was killed or is still writing" if recorded.is_cut else ""
    return CachedPrefixes(stream, text_of, note)


def _text_of(tokenizer: str | PathLike[str] | None) -> TokensText:
    if tokenizer is None:
        return numbers_text
    token_text = token_text_of(tokenizer)
    return lambda token_ids: spelled(map(token_text, token_ids))


Say = Callable[[str], object]


def kv_command(options: Namespace, say: Say) -> None:
    """Run the command. options: place, replay, record, html, tokenizer, seconds, json."""
    with (
        kv_events(options.place, replay=options.replay, record=options.record, tokenizer=options.tokenizer) as prefixes,
        EndingSignals() as signals,
    ):
        if isinstance(prefixes, LivePrefixes):
            _follow(prefixes, signals, options, say)
        if options.html is not None:
            prefixes.export_html(options.html)
        say(dumps(prefixes.to_dict()) if options.json else str(prefixes))


def _follow(prefixes: LivePrefixes, signals: EndingSignals, options: Namespace, say: Say) -> None:
    """Wait for Ctrl-C or another signal, or for the end of --seconds. With JSON, print nothing else."""
    if not options.json:
        limit = "" if options.seconds is None else f", or for {options.seconds:g} s"
        say(f"{prefixes.title}\nfollowing until Ctrl-C{limit}")
    signals.wait(options.seconds, prefixes.wait)
