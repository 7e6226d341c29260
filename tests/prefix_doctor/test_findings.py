"""The costliest finding of a made traffic is its fault, with the tokens that it costs; others have none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.seen_happen import lab_of
from prefix_doctor import traffics
from prefix_doctor.traffics import Made
from recorded_engines import diagnosis_without_runs


def ledger_of(made: Made) -> Ledger:
    """Run a traffic on edition vllm, and judge its look-ups."""
    ledger = Ledger(made.config.groups, made.config.num_blocks, made.traffic.token_text)
    play(made.traffic, made.setting, ledger.add)
    return ledger


@pytest.mark.parametrize("make", traffics.FAULTY)
def test_the_costliest_finding_is_the_fault(make: Callable[[], Made]) -> None:
    made = make()
    ledger = ledger_of(made)
    first, *others = ledger.findings()
    assert first.kind == made.kind
    assert first.num_lost == pytest.approx(made.num_lost, rel=0.02)
    assert not others
    assert first.examples


@pytest.mark.parametrize("make", traffics.FAULTY)
def test_a_few_prompts_alone_show_the_fault_in_a_lab(make: Callable[[], Made]) -> None:
    made = make()
    finding = ledger_of(made).findings()[0]
    if finding.kind == "other_replica":  # a lab is one engine
        assert not finding.shown
        return
    lab = lab_of(finding, made.traffic, made.setting)
    lab.run()
    assert 2 <= len(finding.shown) <= 6
    assert diagnosis_without_runs(lab).findings


@pytest.mark.parametrize("make", traffics.FAULTLESS)
def test_a_traffic_without_a_fault_has_no_finding(make: Callable[[], Made]) -> None:
    ledger = ledger_of(make())
    assert not ledger.findings()
    assert "(100%) are no fault" in ledger.no_fault
