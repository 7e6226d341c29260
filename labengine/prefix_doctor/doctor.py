"""labengine.doctor: why each request hit or missed the prefix cache."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike

from labengine import events as ev
from labengine.config import ConfigError, checked_int
from labengine.lab import Lab
from labengine.prefix_doctor.diagnosis import Diagnosis
from labengine.prefix_doctor.look_ups.alike import groups_of
from labengine.prefix_doctor.look_ups.examine import Examination, examine
from labengine.prefix_doctor.look_ups.prefixes import LostPrefix, lost_prefixes, merged
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.look_ups.sentences import Sentences
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.wording import counted, readable
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.settings import refuse_unknown
from labengine.system.ending_signals import EndingSignals
from labengine.vllm.stream.attach import MAX_EVENTS
from labengine.vllm.stream.endpoints import is_live
from labengine.vllm.stream.files import places_in
from labengine.vllm.stream.ranks import attach_ranks

MAX_SECONDS = 3600.0
"""Seconds that reading a stream may take by default."""


def doctor(
    place: Lab | ViewedRecording | str | PathLike[str],
    *,
    tokenizer: str | PathLike[str] | None = None,
    top: int = 10,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> Diagnosis:
    """Return why each request of a recording hit or missed the prefix cache, and which prefixes would have saved most.

    place: a lab, an opened or attached recording, a .lab file, a .labstream file, or the folder of
    LABENGINE_TAP=file:DIR. tokenizer: a model's directory or name, for the text of tokens. top: number of prefixes to
    name. max_bytes, max_seconds: limits of reading. Raises ConfigError or, for a damaged file, TraceError.
    """
    refuse_unknown("doctor()", unknown, doctor)
    top = checked_int("top", top, 0)
    recordings = recordings_of(place, tokenizer, Limits(place, max_bytes, max_seconds))
    return diagnosis_of(recordings, top)


def diagnosis_of(recordings: list[RecordedEngine], top: int) -> Diagnosis:
    """Examine recordings, the pieces of one stream, and combine the results."""
    examinations = [examine(one) for one in recordings]
    examined = [
        (examination, replace(one, sentence=words.sentence(one)))
        for examination, words in ((one, Sentences(one)) for one in examinations)
        for one in examination.look_ups
    ]
    look_ups = tuple(one for _, one in examined)
    return Diagnosis(
        title=recordings[0].title,
        unit=examinations[0].unit,
        look_ups=look_ups,
        groups=groups_of(examined),
        sums=Sums.of(one for one in look_ups if one.is_first),
        sums_again=Sums.of(one for one in look_ups if not one.is_first),
        prefixes=merged((_prefixes(one, top) for one in examinations), top),
        num_waiting=examinations[-1].num_waiting,
        notes=(
            *notes_of(one.events for one in recordings),
            *(note for one in recordings for note in (one.note, _note(one)) if note),
        ),
        recording=recordings[0],
    )


def _prefixes(examination: Examination, top: int) -> list[LostPrefix]:
    words = Sentences(examination)
    return [replace(one, text=words.outline(i, one.num_tokens)) for one, i in lost_prefixes(examination, top)]


def _note(recording: RecordedEngine) -> str:
    if not recording.is_late:
        return ""
    why = readable(recording.why_late or "the engine had run before", 300)
    return f"The content cached and evicted before the recording's first event is unknown: {why}."


def notes_of(pieces: Iterable[Sequence[ev.Event]]) -> Iterator[str]:
    """Yield a sentence on drafts and one on priorities, if a recording has any."""
    num_judged = num_accepted = num_drafts = 0
    overtaken: set[int] = set()
    for events in pieces:
        judged = [event for event in events if isinstance(event, ev.DraftsJudged)]
        num_judged += len(judged)
        num_accepted += sum(event.num_accepted for event in judged)
        num_drafts += sum(event.num_accepted + event.num_rejected for event in judged)
        overtaken |= _overtaken(events)
    if num_drafts:
        yield (
            f"Of {counted(num_drafts, 'draft')} computed, including padding, the model accepted "
            f"{num_accepted:,} ({num_accepted / num_drafts:.1%}): {1 + num_accepted / num_judged:.2f} tokens per "
            "request and step."
        )
    if overtaken:
        yield f"{counted(len(overtaken), 'request')} waited while later, more urgent requests were admitted."


def _overtaken(events: Sequence[ev.Event]) -> set[int]:
    """Return the requests that waited while a more urgent, later one was admitted."""
    waiting: dict[int, int] = {}
    found: set[int] = set()
    if not any(isinstance(event, ev.RequestAdded) and event.priority for event in events):
        return found
    for event in events:
        match event:
            case ev.RequestAdded(request_id):
                waiting[request_id] = event.priority
            case ev.PrefixHit(request_id):
                priority = waiting.pop(request_id, None)
                if priority is not None:
                    found.update(i for i, other in waiting.items() if i < request_id and other > priority)
            case ev.RequestFinished(request_id):
                waiting.pop(request_id, None)
    return found


Say = Callable[[str], object]


def doctor_command(options: Namespace, say: Say) -> None:
    """Run the command. options: place, json, tokenizer, top, twice, seconds."""
    if is_live(options.place):
        _follow(options, say)
        return
    if options.seconds is not None:
        raise ConfigError("--seconds is only for a running vLLM: a recording is always examined in full")
    for number, place in enumerate(places_in(options.place)):
        _print(doctor(place, tokenizer=options.tokenizer, top=options.top), number, options, say)


def _follow(options: Namespace, say: Say) -> None:
    """Follow all engines of a place until Ctrl-C or another signal, or their end; then examine each recording."""
    if options.twice:
        raise ConfigError("--twice repeats the requests of a file: let the tap write one (LABENGINE_TAP=file:DIR)")
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
