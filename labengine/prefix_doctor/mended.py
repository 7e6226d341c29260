"""The findings of a ledger with their prices and their cures, and the same traffic in other settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

from labengine.config import EngineConfig
from labengine.prefix_doctor.causes.cures import played_cure
from labengine.prefix_doctor.causes.finding import Finding
from labengine.prefix_doctor.causes.ledger import Evidence, Ledger
from labengine.prefix_doctor.causes.traffic_sums import Part
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.play.clock import Clock
from labengine.prefix_doctor.play.curves import curves_of, first_of
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.model_config import Capacity
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.price import Prices
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.report.report import Ages, Curve, Report, Span, TenantTokens
from labengine.prefix_doctor.traffic.prompt import Traffic
from labengine.record.wording import counted

MAX_CURED = 5
"""Findings, the costliest ones, whose cures are played."""


@dataclass(frozen=True, slots=True)
class Costs:
    """How the user wants things priced.

    clock_note: a sentence on a fitted clock; clock_words: the clock as it was given. command: what was typed.
    """

    prices: Prices = field(default_factory=Prices)
    clock_note: str = ""
    clock_words: str = ""
    currency: str = ""
    command: str = ""
    has_curves: bool = True

    @property
    def clock(self) -> Clock | None:
        """The duration of a step."""
        return self.prices.clock


def report_of(
    title: str,
    ledger: Ledger,
    *,
    sums: Sums,
    sums_again: Sums,
    figures: Figures,
    unit: int,
    traffic: Traffic | None,
    setting: Setting | None,
    costs: Costs,
    look_ups: tuple[LookUp, ...] = (),
    notes: tuple[str, ...] = (),
    capacity: Capacity | None = None,
    is_partial: bool = False,
) -> Report:
    """Return the report on a ledger. traffic, setting: to play cures and curves with; None leaves them out."""
    evidence = ledger.evidence()
    findings = tuple(replace(one.finding, price=costs.prices.of(one.finding.num_lost)) for one in evidence)
    curves: tuple[Curve, ...] = ()
    over_time_unit, spans = _over_time(ledger.over_time())
    if traffic is not None and setting is not None and not is_partial:
        some, number = first_of(traffic)
        if number is not None:
            notes = (*notes, f"Cures and curves were played on the first {counted(number, 'prompt')}.")
        is_just_played = number is None and not look_ups
        try:
            before = figures if is_just_played or not findings else _figures(some, setting)
            findings = _cured(evidence, findings, ledger, some, setting, before)
            curves = tuple(curves_of(some, setting)) if costs.has_curves else ()
        except KeyboardInterrupt:
            notes = (*notes, "Interrupted: not all cures and curves were played.")
    return Report(
        title=title,
        settings=_settings(setting, costs),
        unit=unit,
        figures=figures,
        sums=sums,
        sums_again=sums_again,
        findings=findings,
        no_fault="" if findings else ledger.no_fault,
        curves=curves,
        by_tenant=tuple(_of_tenant(part) for part in ledger.by_tenant()),
        over_time=spans,
        over_time_unit=over_time_unit,
        ages=_ages(ledger),
        look_ups=look_ups,
        notes=tuple(dict.fromkeys(notes)),
        is_partial=is_partial,
        clock_note=costs.clock_note,
        bytes_per_token=None if costs.prices.bytes_per_token is None else round(costs.prices.bytes_per_token),
        currency=costs.currency,
        capacity=capacity,
        command=costs.command,
    )


def _cured(
    evidence: list[Evidence],
    findings: tuple[Finding, ...],
    ledger: Ledger,
    traffic: Traffic,
    setting: Setting,
    before: Figures,
) -> tuple[Finding, ...]:
    """Return the findings, the costliest ones with their cures. before: the figures of the traffic."""
    cured = [
        replace(finding, cure=played_cure(one, ledger, traffic, setting, before, _figures))
        for one, finding in zip(evidence[:MAX_CURED], findings, strict=False)
    ]
    return (*cured, *findings[MAX_CURED:])


def _figures(traffic: Traffic, setting: Setting) -> Figures:
    return play(traffic, setting).figures


def _settings(setting: Setting | None, costs: Costs) -> dict[str, Any]:
    if setting is None:
        return {}
    config = setting.config
    return {
        "edition": setting.parts.name,
        "num_blocks": config.num_blocks,
        "block_size": config.scheduler_block_size,
        "groups": _groups(config),
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "num_replicas": setting.num_replicas,
        "routing": setting.routing,
        "clock": costs.clock_note or (f"clock {costs.clock_words}" if costs.clock_words else None),
    }


def _groups(config: EngineConfig) -> tuple[str, ...]:
    return tuple(group.kind.replace("_", " ") for group in config.groups)


def _of_tenant(part: Part) -> TenantTokens:
    return TenantTokens(part.name, part.num_tokens, part.num_hit, part.num_lost)


def _over_time(parts: list[Part]) -> tuple[Literal["prompts", "seconds"], tuple[Span, ...]]:
    """Return the sums of equal stretches of prompts, by their arrivals if these are known, else by their numbers."""
    arrivals = [part.arrival for part in parts if part.arrival is not None]
    is_timed = len(arrivals) == len(parts) > 0 and arrivals[-1] > arrivals[0]
    starts = arrivals if is_timed else [0.0, *accumulate(part.num_prompts for part in parts)][: len(parts)]
    ends = [*starts[1:], starts[-1] + (0 if is_timed else parts[-1].num_prompts)] if parts else []
    spans = (
        Span(start, end, part.num_tokens, part.num_hit, part.num_lost)
        for start, end, part in zip(starts, ends, parts, strict=True)
    )
    return "seconds" if is_timed else "prompts", tuple(spans)


def _ages(ledger: Ledger) -> Ages | None:
    ages = ledger.ages()
    if not ages.hit and not ages.evicted:
        return None
    hit, evicted = (tuple((2.0**age, number) for age, number in one.items()) for one in (ages.hit, ages.evicted))
    return Ages("blocks", hit, evicted)
