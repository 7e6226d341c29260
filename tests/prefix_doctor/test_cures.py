"""What a finding's cure saves is what the traffic saves that was made without the fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labengine.prefix_doctor.causes.cures import changes_for
from labengine.prefix_doctor.causes.ledger import Ledger
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
    changes = list(changes_for(ledger.evidence()[0], ledger, made.setting))
    cured = [figures(one.of_traffic(made.traffic), one.of_setting(made.setting)) for one in changes]
    mended = figures(made.cured, made.cured_setting).num_computed + made.num_apart
    best = before.num_computed - min(one.num_computed for one in cured)
    assert best == pytest.approx(before.num_computed - mended, rel=0.02)
