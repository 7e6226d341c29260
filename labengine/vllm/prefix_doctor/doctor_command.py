"""labengine doctor: print why requests hit or missed the prefix cache, of recordings or of a running vLLM."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable

from labengine.config import ConfigError
from labengine.system.ending_signals import EndingSignals
from labengine.vllm.prefix_doctor.diagnosis import Diagnosis
from labengine.vllm.prefix_doctor.doctor import doctor
from labengine.vllm.stream.attach import MAX_EVENTS
from labengine.vllm.stream.endpoints import is_live
from labengine.vllm.stream.files import places_in
from labengine.vllm.stream.ranks import attach_ranks

Say = Callable[[str], object]


def doctor_command(options: Namespace, say: Say) -> None:
    """Run the command. options: place, json, tokenizer, top, twice, seconds."""
    if is_live(options.place):
        _follow(options, say)
        return
    if options.seconds is not None:
        raise ConfigError("--seconds is for a running vLLM: a recording is examined whole")
    for number, place in enumerate(places_in(options.place)):
        _print(doctor(place, tokenizer=options.tokenizer, top=options.top), number, options, say)


def _follow(options: Namespace, say: Say) -> None:
    """Follow all engines of a place until Ctrl-C or another signal, or their end; then examine what came of each."""
    if options.twice:
        raise ConfigError("--twice runs the requests of a file again: let the tap write one (LABENGINE_TAP=file:DIR)")
    with (
        attach_ranks(options.place, tokenizer=options.tokenizer, max_events=MAX_EVENTS) as ranks,
        EndingSignals() as signals,
    ):
        if not options.json:
            say("\n".join(stream.title for stream in ranks.streams))
            say("following until Ctrl-C, or until vLLM ends; then why each request hit or missed the prefix cache\n")
        signals.wait(options.seconds, lambda period: all(stream.wait(period) for stream in ranks.streams))
        for number, stream in enumerate(ranks.streams):
            _print(doctor(stream, top=options.top), number, options, say)


def _print(found: Diagnosis, number: int, options: Namespace, say: Say) -> None:
    pools = found.with_pools() if options.twice else None
    if options.json:
        say(json.dumps({**found.to_dict(), "pools": None if pools is None else pools.to_dict()}))
    else:
        say("\n" * (number > 0) + (str(found) if pools is None else f"{found}\n\n{pools}"))
