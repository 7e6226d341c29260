"""The right cause comes first in traffics that were made without knowledge of how causes are found, with its cure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from labengine.config import EngineConfig, GroupSpec
from labengine.core.editions import edition
from labengine.prefix_doctor.causes.cures import played_cure
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Traffic
from prefix_doctor.foreign_traffics import FOREIGN, Log, foreign_log, shuffled_chunks, shuffled_tools


@dataclass(frozen=True)
class Played:
    """A traffic that was played, with its ledger."""

    ledger: Ledger
    traffic: Traffic
    setting: Setting
    figures: Figures


def played(make: Callable[[Log, bool], None], *, mended: bool = False) -> Played:
    """Play a traffic, as it is or mended."""
    log = foreign_log(make, mended=mended)
    config = EngineConfig(log.num_blocks, (GroupSpec(16),), max_num_seqs=4)
    ledger = Ledger(config.groups, config.num_blocks, log.tokens.text)
    traffic = Traffic(make.__name__, lambda: iter(log.prompts), log.tokens.text)
    setting = Setting(config, edition("vllm"), None, log.num_replicas, log.routing)
    return Played(ledger, traffic, setting, play(traffic, setting, ledger.add).figures)


@pytest.mark.parametrize("make", FOREIGN)
def test_the_costliest_cause_is_named_first(make: Callable[[Log, bool], None]) -> None:
    findings = played(make).ledger.findings()
    assert findings[0].kind == FOREIGN[make]
    assert not any(" 0 equal tokens" in one.title for one in findings)


@pytest.mark.parametrize("make", FOREIGN)
def test_a_mended_traffic_does_not_have_the_fault(make: Callable[[Log, bool], None]) -> None:
    assert FOREIGN[make] not in [one.kind for one in played(make, mended=True).ledger.findings()[:1]]


@pytest.mark.parametrize("make", [shuffled_tools, shuffled_chunks])
def test_a_fixed_order_saves_what_the_changing_order_costs(make: Callable[[Log, bool], None]) -> None:
    one, mended = played(make), played(make, mended=True).figures
    (evidence,) = one.ledger.evidence()
    cure = played_cure(
        evidence, one.ledger, one.traffic, one.setting, one.figures, lambda *changed: play(*changed).figures
    )
    assert cure is not None and "in a fixed order" in cure.words
    assert cure.num_saved == pytest.approx(one.figures.num_computed - mended.num_computed, rel=0.05)
