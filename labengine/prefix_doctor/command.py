"""labengine doctor: the command."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

from tqdm import tqdm

from labengine.config import ConfigError
from labengine.prefix_doctor.asked import Asked
from labengine.prefix_doctor.diagnosis import Diagnosis, written
from labengine.prefix_doctor.doctor import Pricing, diagnosis_of
from labengine.prefix_doctor.report.perfetto import perfetto_of
from labengine.prefix_doctor.report.prometheus import MAX_KEPT, PrometheusEndpoint
from labengine.prefix_doctor.report.words import percent
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.prefix_doctor.traffic.sources import MAX_SECONDS, FileTraffic, Recordings, opened
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.system.ending_signals import EndingSignals
from labengine.vllm.stream.attach import MAX_EVENTS
from labengine.vllm.stream.endpoints import is_live
from labengine.vllm.stream.files import places_in
from labengine.vllm.stream.ranks import attach_ranks

Say = Callable[[str], object]

FAILED = 1
"""Exit status of a hit rate below --fail-under."""


def doctor_command(options: Namespace, say: Say) -> int:
    """Run the command; return its exit status. options: as labengine.terminal declares them."""
    _refuse_with_show(options)
    asked = _asked(options)
    if is_live(options.place):
        if options.perfetto or not asked.is_empty:
            raise ConfigError("a running vLLM is examined as it is: record it first (LABENGINE_TAP=file:DIR)")
        return _follow(options, say)
    for name in ("seconds", "prometheus"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} is only for a running vLLM: a file is always read in full")
    places = places_in(options.place) if asked.is_empty else [options.place]
    found = [_opened(place, options) for place in places]
    if options.perfetto:
        written(options.perfetto, perfetto_of([one for each in found for one in _recordings(each)]))
    return max(_report(one, asked, number, options, say) for number, one in enumerate(found))


def _refuse_with_show(options: Namespace) -> None:
    for option, value in (("--html", options.html), ("--json", options.json), ("--fail-under", options.fail_under)):
        if options.show is not None and value not in (None, False):
            raise ConfigError(f"--show prints a lab instead of the report: leave out {option}")


def _asked(options: Namespace) -> Asked:
    return Asked(**{field.name: getattr(options, field.name) for field in fields(Asked)})


def _opened(place: str, options: Namespace) -> Traffic | Recordings:
    found = opened(place, options.tokenizer, Limits(place, MAX_BYTES, MAX_SECONDS))
    return _with_progress(found) if isinstance(found, FileTraffic) and sys.stderr.isatty() else found


def _with_progress(traffic: FileTraffic) -> Traffic:
    """Return traffic whose readings show how much of the file has been read, in a line that the report replaces."""

    def read() -> Iterator[Prompt]:
        form = "{desc}: {percentage:3.0f} %|{bar}| {elapsed}"
        with tqdm(total=100, desc=f"Reading {traffic.title}", bar_format=form, leave=False) as bar:
            for prompt in traffic:
                yield prompt
                bar.update(int(100 * traffic.share_read()) - bar.n)
        print("Running the prompts with cures and other settings …", end="\r", file=sys.stderr, flush=True)

    return replace(traffic, read=read)


def _recordings(found: Traffic | Recordings) -> list:  # type: ignore[type-arg]
    if isinstance(found, Traffic):
        raise ConfigError("--perfetto shows the steps of a recording, and a file of prompts has none")
    return [one for pieces in found.values() for one in pieces]


def _follow(options: Namespace, say: Say) -> int:
    """Follow all engines of a place until Ctrl-C or another signal, or their end; then examine each recording."""
    most = MAX_EVENTS if options.prometheus is None else MAX_KEPT
    with attach_ranks(options.place, tokenizer=options.tokenizer, max_events=most) as ranks, EndingSignals() as signals:
        if not options.json:
            say("\n".join(stream.title for stream in ranks.streams))
            say("following until Ctrl-C, or until vLLM ends; then why each request hit or missed the prefix cache\n")
        if options.prometheus is None:
            signals.wait(options.seconds, lambda period: all(stream.wait(period) for stream in ranks.streams))
        else:
            with PrometheusEndpoint(ranks.streams, options.prometheus) as endpoint:
                print(f"metrics: {endpoint.address}", file=sys.stderr)
                signals.wait(options.seconds, endpoint.follow)
        found = [opened(stream, None, Limits(options.place, MAX_BYTES, MAX_SECONDS)) for stream in ranks.streams]
        return max(_report(one, Asked(), number, options, say) for number, one in enumerate(found))


def _report(found: Traffic | Recordings, asked: Asked, number: int, options: Namespace, say: Say) -> int:
    """Examine one engine or file, print or write the report, and return the exit status."""
    pricing = Pricing(options.clock, options.price_per_hour, options.currency)
    try:
        diagnosis = diagnosis_of(found, asked, pricing, _typed())
    finally:
        _clear_progress()
    if options.show is not None:
        _show(diagnosis, options.show, say)
        return 0
    if options.html:
        path = Path(options.html)
        diagnosis.save_html(path.with_stem(f"{path.stem}.{number}") if number else path)
    say(json.dumps(diagnosis.to_dict()) if options.json else "\n" * (number > 0) + str(diagnosis))
    rate = diagnosis.report.figures.hit_rate
    if options.fail_under is not None and rate < options.fail_under:
        print(f"labengine doctor: the hit rate {percent(rate)} is below {percent(options.fail_under)}", file=sys.stderr)
        return FAILED
    return 0


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _show(diagnosis: Diagnosis, number: int, say: Say) -> None:
    """Print a script that runs the few prompts of a finding in a lab, and tells why each hit or missed."""
    lab = diagnosis.lab(number)
    lab.run()
    say(f"{lab.to_code().rstrip()}\nprint(labengine.doctor(lab))")


def _typed() -> str:
    return shlex.join(["labengine", *sys.argv[1:]])
