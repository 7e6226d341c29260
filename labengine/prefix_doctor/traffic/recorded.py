"""The requests of recordings as prompts, with the tokens that were sampled as their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from typing import Any

from labengine import events as ev
from labengine.config import ConfigError
from labengine.core.request import Image
from labengine.events import UNKNOWN_TOKEN
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.traffic.arrivals import Arrivals
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.wording import counted, listed


def traffic_of_recordings(engines: Mapping[str, Sequence[RecordedEngine]]) -> Traffic:
    """Return the prompts of engines by name, each with the pieces of its recording; several engines are replicas.

    Raises ConfigError for a recording without token ids, or without requests.
    """
    sources = [list(_prompts(number, pieces)) for number, pieces in enumerate(engines.values())]
    recordings = [piece for pieces in engines.values() for piece in pieces]
    title, arrivals, notes = recordings[0].title, Arrivals(), list(_notes(recordings))
    prompts = list(merge(*sources, key=lambda one: one.arrival or 0.0))
    if not prompts:
        raise ConfigError(f"{title} has no requests to play{f': {notes[0]}' if notes else ''}")
    for prompt in prompts:
        prompt.arrival = arrivals.of(prompt.arrival)
        prompt.replica = prompt.replica if len(sources) > 1 else None
    token_text = next((one.token_text for one in recordings if one.token_text is not None), None)
    replicas = [f"Replicas from 0 on: {listed(engines)}."] if len(sources) > 1 else []
    return Traffic(title, lambda: map(replace, prompts), token_text, [*notes, *arrivals.notes(), *replicas])


def _prompts(number: int, pieces: Sequence[RecordedEngine]) -> Iterator[Prompt]:
    """Yield the prompts of one engine; arrivals on the recording's clock."""
    for piece in pieces:
        for prompt in prompts_of(piece).values():
            prompt.replica, prompt.num_answer = number, max(1, len(prompt.answer))
            yield prompt


def prompts_of(piece: RecordedEngine) -> dict[int, Prompt]:
    """Return the prompts of the requests that are added in the events, in order.

    A request arrives with the step after it, because its own time is not recorded; without such a step, with the
    request before it.
    """
    prompts, answers, waiting = dict[int, Prompt](), dict[int, list[int]](), list[Prompt]()
    for event in piece.events:
        match event:
            case ev.RequestAdded(request_id, token_ids):
                if UNKNOWN_TOKEN in token_ids:
                    raise ConfigError(f"{piece.title} was recorded without token ids, so its requests cannot be played")
                prompts[request_id] = prompt = _prompt(piece, event)
                prompt.answer = answers[request_id] = []
                waiting.append(prompt)
            case ev.TokenSampled(request_id, token_id) if request_id in answers:
                answers[request_id].append(token_id)
            case ev.PrefixHit(request_id, is_skipped=True) if request_id in prompts:
                prompts[request_id].skips_cache = True
            case ev.StepStarted(step):
                for prompt in waiting:
                    prompt.arrival = piece.times.get(step)
                waiting.clear()
    return prompts


def _prompt(piece: RecordedEngine, event: ev.RequestAdded) -> Prompt:
    salts: Any = piece.salts or {}
    return Prompt(
        piece.name_of(event.request_id),
        list(event.token_ids),
        extra_keys=salts.get(event.request_id, ()),
        images=tuple(Image(*one) for one in event.images),
        priority=event.priority,
    )


def _notes(recordings: Sequence[RecordedEngine]) -> Iterator[str]:
    yield from (one.note for one in recordings if one.note)
    late = next((one for one in recordings if one.is_late), None)
    if late is not None:
        yield f"Requests that came before a recording's first event are left out: {late.why_late}."
    if any(one.salts is None for one in recordings):
        yield "The recording does not say which requests had a salt or an adapter."
    added = [event for one in recordings for event in one.events if isinstance(event, ev.RequestAdded)]
    if num_forked := sum(one.from_request_id is not None for one in added):
        yield f"{counted(num_forked, 'request')} that continued another one: each is a prompt with all tokens so far."
