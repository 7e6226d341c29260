"""labengine.doctor: why prompts miss the prefix cache, what that costs, and what would mend it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike, fspath

from labengine.config import ConfigError, shown
from labengine.lab import Lab
from labengine.prefix_doctor.asked import Asked
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.causes.ledger_beside import LedgerBeside
from labengine.prefix_doctor.diagnosis import Diagnosis
from labengine.prefix_doctor.examined import diagnosis_of_recordings
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.missing import unit_of
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.sums import RunningSums
from labengine.prefix_doctor.mended import Costs, report_of
from labengine.prefix_doctor.play.clock import Clock, clock_of
from labengine.prefix_doctor.play.fit import fit, steps_of
from labengine.prefix_doctor.play.model_config import ModelFacts
from labengine.prefix_doctor.play.player import Played, play
from labengine.prefix_doctor.play.price import Prices
from labengine.prefix_doctor.play.read_ahead import read_ahead
from labengine.prefix_doctor.play.setting import Routing, Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.prefix_doctor.traffic.recorded import traffic_of_recordings
from labengine.prefix_doctor.traffic.sources import MAX_SECONDS, Recordings, opened
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.record.wording import counted
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.settings import refuse_unknown

FIT = "fit"
"""The clock that is fitted to a recording's own steps."""


@dataclass(frozen=True, slots=True)
class Pricing:
    """How lost tokens are priced. clock: two numbers, a file, FIT, or a Clock; None for no times."""

    clock: str | Clock | None = None
    price_per_hour: float | None = None
    currency: str = ""


def doctor(
    place: Lab | ViewedRecording | str | PathLike[str],
    *,
    tokenizer: str | PathLike[str] | None = None,
    num_blocks: int | None = None,
    block_size: int | None = None,
    model: str | PathLike[str] | None = None,
    gib: float | None = None,
    kv_bytes_per_token: float | None = None,
    edition: str | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    num_replicas: int | None = None,
    routing: Routing | None = None,
    clock: str | Clock | None = None,
    price_per_hour: float | None = None,
    currency: str = "",
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
    **unknown: object,
) -> Diagnosis:
    """Return why prompts hit or missed the prefix cache, what the misses cost, and what would mend them.

    place: a file of prompts (docs/doctor.md), a Mooncake trace, KV events, or a recording: a lab, an opened or attached
    recording, a .lab or .labstream file, the folder of LABENGINE_TAP=file:DIR. A recording is examined as its engine
    ran; with any of the next settings, its requests run in that setting instead, as the prompts of a file always do.
    num_blocks, block_size: the pool. model: a config.json or its folder, from which KV-cache groups follow, and with
    gib (of memory for KV) the number of blocks; kv_bytes_per_token replaces the config.json of an unknown model.
    edition, max_num_seqs, max_num_batched_tokens: by default vLLM, 256 and 8,192. num_replicas, routing: engines that
    share the traffic.
    tokenizer: a model's directory or name, for text. clock: "PREFILL_TOKENS_PER_S,DECODE_STEP_S", a saved clock's JSON
    file, or "fit" for a recording with times. price_per_hour: of one engine, in `currency`.
    max_bytes, max_seconds: limits of reading a recording. Raises ConfigError or, for a damaged file, TraceError.
    """
    refuse_unknown("doctor()", unknown, doctor)
    limits = max_num_seqs, max_num_batched_tokens
    asked = Asked(num_blocks, block_size, model, gib, kv_bytes_per_token, edition, *limits, num_replicas, routing)
    found = opened(place, tokenizer, Limits(place, max_bytes, max_seconds))
    return diagnosis_of(found, asked, Pricing(clock, price_per_hour, currency))


def diagnosis_of(
    found: Traffic | Recordings, asked: Asked, pricing: Pricing, command: str = "", *, has_curves: bool = True
) -> Diagnosis:
    """Return the diagnosis of what was opened. command: what was typed; empty in Python."""
    recordings = [] if isinstance(found, Traffic) else [one for pieces in found.values() for one in pieces]
    costs = replace(_costs(pricing, recordings, asked, command), has_curves=has_curves)
    if isinstance(found, Traffic):
        return diagnosis_of_traffic(found, asked.setting(costs.clock, _num_replicas(found)), costs, asked.facts)
    if not asked.is_empty:
        traffic, setting = traffic_of_recordings(found), asked.setting(costs.clock, len(found))
        return diagnosis_of_traffic(traffic, setting, costs, asked.facts)
    if len(found) > 1:
        raise ConfigError(f"there are {len(found)} engines here: name one of {', '.join(found)}, or give num_replicas")
    return diagnosis_of_recordings(recordings, costs)


def diagnosis_of_traffic(traffic: Traffic, setting: Setting, costs: Costs, model: ModelFacts | None) -> Diagnosis:
    """Run traffic in a setting, and return why its prompts missed. An interrupt ends the run with what is known."""
    ledger = Ledger(setting.config.groups, setting.config.num_blocks, traffic.token_text)
    sums, sums_again = RunningSums(), RunningSums()
    ahead = read_ahead(traffic, setting)
    with nullcontext() if ahead is traffic else LedgerBeside(ledger) as beside:
        add = ledger.add if beside is None else beside.add

        def judge(number: int, prompt: Prompt, one: LookUp) -> None:
            add(number, prompt, one)
            (sums if one.is_first else sums_again).add(one)

        played = play(ahead, setting, judge, keeps_partial=True)
        ledger = ledger if beside is None else beside.finish()
    if not played.figures.num_prompts:
        raise ConfigError(f"{traffic.title} has no prompts that can run{_because(played)}")
    report = report_of(
        traffic.title,
        ledger,
        sums=sums.sums,
        sums_again=sums_again.sums,
        figures=played.figures,
        unit=unit_of(setting.config.groups),
        traffic=traffic,
        setting=setting,
        costs=costs,
        capacity=None if model is None else model.capacity(setting.config),
        notes=(*traffic.notes, *_notes(played, setting.num_replicas), *(() if model is None else model.notes)),
        is_partial=played.is_partial,
    )
    return Diagnosis(report, traffic, setting)


def _notes(played: Played, num_replicas: int) -> list[str]:
    notes = []
    if played.num_refused:
        notes.append(f"{counted(played.num_refused, 'prompt')} can never run and was left out: {played.why_refused}.")
    if played.num_named > num_replicas:
        notes.append(f"The prompts name {played.num_named:,} replicas, but {num_replicas:,} served them.")
    if played.has_forgotten:
        notes.append("Prefixes that were not used for millions of blocks count as new.")
    return notes


def _because(played: Played) -> str:
    return f": {played.why_refused}" if played.why_refused else ""


def _num_replicas(traffic: Traffic) -> int:
    """Return the number of replicas that the first prompts name, 0 if none."""
    named = {prompt.replica for _, prompt in zip(range(1000), traffic, strict=False) if prompt.replica is not None}
    return max(named) + 1 if named else 0


def _costs(pricing: Pricing, recordings: list[RecordedEngine], asked: Asked, command: str) -> Costs:
    """Return the clock and the prices, with a sentence on how far the clock can be trusted."""
    note, clock = "", pricing.clock if isinstance(pricing.clock, Clock) else None
    if pricing.clock == FIT:
        fitted = fit(step for one in recordings for step in steps_of(one))
        note, clock = fitted.sentence, fitted.clock
    elif isinstance(pricing.clock, str | PathLike):
        clock = clock_of(fspath(pricing.clock))
    elif clock is None and pricing.clock is not None:
        raise ConfigError(
            f"clock must be two numbers in a string, a file, {FIT!r} or a Clock, got {shown(pricing.clock)}"
        )
    prices = Prices(clock, asked.bytes_per_token(), pricing.price_per_hour)
    words = pricing.clock if isinstance(pricing.clock, str) and not note else ""
    return Costs(prices, note, words, pricing.currency, command)
