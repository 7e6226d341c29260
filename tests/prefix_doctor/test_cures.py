"""What a finding's cure saves is what the traffic saves that was made without the fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from labengine.prefix_doctor.causes.cures import played_cure
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.play.curves import curves_of
from labengine.prefix_doctor.play.figures import Figures
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Traffic
from prefix_doctor import traffics
from prefix_doctor.traffics import Made


def figures(traffic: Traffic, setting: Setting) -> Figures:
    return play(traffic, setting).figures


@pytest.mark.parametrize("make", traffics.FAULTY)
def test_the_cure_saves_what_the_fault_costs(make: Callable[[], Made]) -> None:
    made = make()
    ledger = Ledger(made.config.groups, made.config.num_blocks, made.traffic.token_text)
    before = play(made.traffic, made.setting, ledger.add).figures
    cure = played_cure(ledger.evidence()[0], ledger, made.traffic, made.setting, before, figures)
    mended = figures(made.cured, made.cured_setting)
    assert cure is not None
    assert cure.num_saved == pytest.approx(before.num_computed - mended.num_computed - made.num_apart, rel=0.02)


def test_the_present_state_interval_of_a_curve_is_the_examined_run() -> None:
    made = traffics.states_at_ends()
    first = next(iter(made.traffic))
    traffic = Traffic("two of a prefix", lambda: iter([first, replace(first, token_ids=[*first.token_ids[:320], 1])]))
    (curve,) = [one for one in curves_of(traffic, made.setting) if one.name == "state_interval"]
    hits = {one.value: one.figures.num_hit for one in curve.points}
    assert hits[curve.current] == figures(traffic, made.setting).num_hit == 0 < hits[32]
