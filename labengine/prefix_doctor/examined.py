"""The diagnosis of a recording: of the look-ups that an engine made, by their events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from labengine import events as ev
from labengine.config import ConfigError
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.diagnosis import Diagnosis
from labengine.prefix_doctor.look_ups.examine import Examination, examine
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.sentences import Sentences
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.mended import Costs, report_of
from labengine.prefix_doctor.play.clock import Clock
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.prefix_doctor.traffic.recorded import prompts_of, traffic_of_recordings
from labengine.record.wording import counted, readable
from labengine.vllm.conformance.against import cost_of

_TEXT_CAUSES = ("new", "short_of_a_block")


def diagnosis_of_recordings(recordings: Sequence[RecordedEngine], costs: Costs) -> Diagnosis:
    """Examine the recordings of one engine, the pieces of a stream with gaps, and combine the results."""
    examinations = [examine(one) for one in recordings]
    first = examinations[0]
    token_text = recordings[0].token_text if first.sequences.has_tokens else lambda token: "·"
    ledger = Ledger(first.groups, len(recordings[0].first.ref_counts) or None, token_text)
    look_ups = list[LookUp]()
    for examination in examinations:
        words, prompts = Sentences(examination), _prompts(examination)
        for one in examination.look_ups:
            ledger.add(one.request_id, prompts[one.request_id], _judged(one, examination))
            look_ups.append(replace(one, sentence=words.sentence(one)))
    traffic, setting, why = _repeatable(recordings, costs.clock)
    report = report_of(
        recordings[0].title,
        ledger,
        look_ups=tuple(look_ups),
        sums=Sums.of(one for one in look_ups if one.is_first),
        sums_again=Sums.of(one for one in look_ups if not one.is_first),
        figures=_figures(recordings, look_ups),
        unit=first.unit,
        traffic=traffic,
        setting=setting,
        costs=costs,
        notes=(*_notes(recordings, examinations[-1].num_waiting), *([why] if why else [])),
    )
    return Diagnosis(report, traffic, setting)


def _prompts(examination: Examination) -> dict[int, Prompt]:
    """Return the prompt of each request that was looked up, by its id."""
    recording, tokens = examination.recording, examination.sequences.tokens
    known = prompts_of(recording) if examination.sequences.has_tokens else {}
    for one in examination.look_ups:
        if one.request_id not in known:
            known[one.request_id] = Prompt(recording.name_of(one.request_id), tokens[one.request_id][: one.num_tokens])
    return known


def _judged(one: LookUp, examination: Examination) -> LookUp:
    """Return a look-up as the ledger judges it: tokens that were not recorded have no text to compare."""
    if examination.sequences.has_tokens:
        return one
    return replace(one, misses=tuple(miss for miss in one.misses if miss.cause not in _TEXT_CAUSES))


def _figures(recordings: Sequence[RecordedEngine], look_ups: Sequence[LookUp]) -> Figures:
    """Return what the recorded engine did."""
    cost = cost_of([event for one in recordings for event in one.events])
    prompts = [one for one in look_ups if one.is_first]
    return Figures(
        num_prompts=len(prompts),
        num_tokens=sum(one.num_tokens for one in prompts),
        num_hit=sum(one.num_hit for one in prompts),
        num_computed=cost.computed_tokens,
        num_steps=cost.forward_passes,
        num_preemptions=cost.preemptions,
        num_evicted_blocks=cost.evicted_blocks,
        peak_blocks=cost.peak_blocks,
    )


def _repeatable(
    recordings: Sequence[RecordedEngine], clock: Clock | None
) -> tuple[Traffic | None, Setting | None, str]:
    """Return the requests and the settings to repeat them with, or the reason that they cannot be repeated."""
    recording = recordings[0]
    if recording.is_late:
        return None, None, f"Nothing was repeated: {recording.why_late or 'the engine had run before'}."
    if recording.repeatable is not None and recording.repeatable.config.num_drafts:
        return None, None, "Nothing was repeated: the guesses of speculative decoding came from the recorded worker."
    if recording.repeatable is None:
        return None, None, f"Nothing was repeated: {recording.why_not_repeatable}."
    try:
        traffic = traffic_of_recordings({recording.title: recordings[:1]})
    except ConfigError as error:
        return None, None, f"Nothing was repeated: {error}."
    return traffic, Setting(recording.repeatable.config, recording.repeatable.parts, clock), ""


def _notes(recordings: Sequence[RecordedEngine], num_waiting: int) -> Iterator[str]:
    """Yield sentences on requests that never ran, on missing data, on drafts and on priorities."""
    if num_waiting:
        yield f"{counted(num_waiting, 'request')} never admitted."
    yield from _of_drafts(one.events for one in recordings)
    overtaken = {number for one in recordings for number in _overtaken(one.events)}
    if overtaken:
        yield f"{counted(len(overtaken), 'request')} waited while later, more urgent requests were admitted."
    for one in recordings:
        yield from filter(None, [one.note])
        if one.is_late:
            why = readable(one.why_late or "the engine had run before", 300)
            yield f"The content cached and evicted before the recording's first event is unknown: {why}."


def _of_drafts(pieces: Iterable[Sequence[ev.Event]]) -> Iterator[str]:
    judged = [event for events in pieces for event in events if isinstance(event, ev.DraftsJudged)]
    num_accepted = sum(event.num_accepted for event in judged)
    num_drafts = num_accepted + sum(event.num_rejected for event in judged)
    if num_drafts:
        yield (
            f"Of {counted(num_drafts, 'draft')} computed, including padding, the model accepted "
            f"{num_accepted:,} ({num_accepted / num_drafts:.1%}): {1 + num_accepted / len(judged):.2f} tokens per "
            "request and step."
        )


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
