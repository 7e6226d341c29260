"""The right cause comes first in traffics that were made without knowledge of how causes are found."""

from __future__ import annotations

from collections.abc import Callable

from labengine.config import EngineConfig, GroupSpec
from labengine.core.editions import edition
from labengine.prefix_doctor.causes.finding import Kind
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Traffic
from prefix_doctor.foreign_traffics import FOREIGN, Log, foreign_log

LEAST_NAMED = 8


def kinds_found(make: Callable[[Log, bool], None], *, mended: bool = False) -> list[Kind]:
    """Return the kinds of the findings in a traffic, costliest first."""
    log = foreign_log(make, mended=mended)
    config = EngineConfig(log.num_blocks, (GroupSpec(16),), max_num_seqs=4)
    ledger = Ledger(config.groups, config.num_blocks, log.tokens.text)
    traffic = Traffic(make.__name__, lambda: iter(log.prompts), log.tokens.text)
    play(traffic, Setting(config, edition("vllm"), None, log.num_replicas, log.routing), ledger.add)
    return [finding.kind for finding in ledger.findings()]


def test_the_costliest_cause_is_named_first() -> None:
    found = {make.__name__: (kinds_found(make)[:1], kind) for make, kind in FOREIGN.items()}
    assert len(found) == 10
    assert sum(kinds == [kind] for kinds, kind in found.values()) >= LEAST_NAMED, found


def test_a_mended_traffic_does_not_have_the_fault() -> None:
    for make, kind in FOREIGN.items():
        assert kind not in kinds_found(make, mended=True)[:1], make.__name__
