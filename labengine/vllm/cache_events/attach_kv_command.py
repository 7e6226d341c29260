"""labengine attach-kv: print, record, or write as a page what KV events tell of the prefix cache."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from json import dumps

from labengine.system.ending_signals import EndingSignals
from labengine.vllm.cache_events.attach import kv_events
from labengine.vllm.cache_events.live import LivePrefixes

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
    """Wait until Ctrl-C or another signal, or until so many seconds have passed. With JSON nothing else is said."""
    if not options.json:
        limit = "" if options.seconds is None else f", or for {options.seconds:g} s"
        say(f"{prefixes.title}\nfollowing until Ctrl-C{limit}")
    signals.wait(options.seconds, prefixes.wait)
