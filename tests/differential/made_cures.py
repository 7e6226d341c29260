"""The cure that the doctor proposes for a made traffic, and what vLLM's own schedulers compute with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from differential.traffic import Row, totals_on_vllm
from differential.vllm_process import VllmProcess
from labengine.prefix_doctor.causes.cures import played_cure
from labengine.prefix_doctor.causes.finding import Cure
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Traffic
from prefix_doctor.traffics import Made


@dataclass(frozen=True)
class Proposed:
    """The cure of the costliest finding, and the traffic and the setting with it."""

    cure: Cure
    traffic: Traffic
    setting: Setting


def proposed(made: Made) -> Proposed:
    """Run a traffic on edition vllm, and return the doctor's cure."""
    before = made.setting
    ledger = Ledger(made.config.groups, made.config.num_blocks, made.traffic.token_text)
    figures = play(made.traffic, before, ledger.add).figures
    tried: list[tuple[Figures, Traffic, Setting]] = []

    def noted(traffic: Traffic, setting: Setting) -> Figures:
        tried.append((play(traffic, setting).figures, traffic, setting))
        return tried[-1][0]

    cure = played_cure(ledger.evidence()[0], ledger, made.traffic, before, figures, noted)
    assert cure is not None
    return next(Proposed(cure, traffic, setting) for after, traffic, setting in tried if after is cure.after)


def on_vllm(vllm: VllmProcess, make: Callable[[], Made]) -> Row:
    """Return vLLM's totals of a traffic as it is, with the cure that is known, and with the doctor's.

    Prompts that the known cure keeps away are served by another engine.
    """
    made = make()
    ours = proposed(made)
    kept = [prompt.token_ids for prompt in made.cured]
    away = [] if len(kept) == len(list(made.traffic)) else [one for one in made.traffic if one.token_ids not in kept]
    after, elsewhere = (totals_on_vllm(vllm, traffic, made.cured_setting) for traffic in (made.cured, away))
    return {
        "before": totals_on_vllm(vllm, made.traffic, made.setting),
        "after": {key: after[key] + elsewhere[key] for key in after},
        "doctor": totals_on_vllm(vllm, ours.traffic, ours.setting),
    }
