"""Freed twice, freed in flight, freed too early and kept too late: the figures, derived by hand."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.config import EngineConfig, GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.journal import Journal
from labengine.core.parts import Parts
from labengine.record.hooks import Hooks
from labengine.scenarios import bug
from labengine.scenarios.imp_963_window_rounded_up import WindowRoundedUp

FIGURES = {
    "ferrox-61": ({"used blocks": 7, "that no token will read": 5, "preemptions": 3}, {"preemptions": 0}),
    "imp-963": ({"decode steps": 8, "of them with a block missing": 6}, {"of them with a block missing": 0}),
    "mini-sglang-111": (
        {"references dropped by the abort": 2, "references dropped by the end": 3, "blocks misread": 1},
        {"references dropped by the abort": 0, "references dropped by the end": 3, "blocks misread": 0},
    ),
    "sglang-27779": (
        {"blocks that A took": 3, "blocks that A gave back": 2, "entries that left A's window": 1, "blocks misread": 1},
        {"blocks that A took": 3, "blocks that A gave back": 1},
    ),
    "sglang-29860": (
        {"tokens found again": 0, "computed tokens": 26},
        {"tokens found again": 8, "computed tokens": 18},
    ),
    "sglang-jax-994": (
        {"references that B had": 2, "references that B dropped": 3, "blocks misread": 1},
        {"references that B dropped": 2},
    ),
    "vllm-45357": ({"blocks misread by B": 1, "steps computed for A after its end": 1}, {"blocks misread by B": 0}),
    "vllm-47728": ({"blocks misread": 1, "blocks freed by the window": 1}, {"blocks freed by the window": 0}),
}


@pytest.mark.parametrize("id", FIGURES)
def test_the_figures(id: str) -> None:
    verdict = bug(id).verdict()
    before, after = FIGURES[id]
    assert dict(verdict.before) == before
    assert after.items() <= verdict.after.items()


def test_without_the_fence_the_tiers_block_is_the_one_that_the_step_in_flight_writes() -> None:
    scenario = bug("vllm-45357")
    with scenario.broken() as lab:
        assert lab.timeline is not None
        [load] = lab.timeline.of_kind(ev.BlocksLoaded)
        [late] = [event for event in lab.timeline.of_kind(ev.SlotsWritten) if event.start == 6]
        assert late.runs == ((load.transfers[0][2], 2, 1),)
        first = scenario.first_wrong(lab)
        assert first is not None and first.event == late


def test_the_fence_gives_the_blocks_back_after_the_step() -> None:
    with bug("vllm-45357").fixed() as lab:
        lab.run()
        assert lab.snapshot().num_used_blocks == 0 and lab.violations == []
        assert [request.status for request in lab.snapshot().requests.values()] == ["finished", "finished"]


def test_an_engine_that_knows_the_tokens_launches_nothing_in_vain() -> None:
    assert bug("vllm-45357").measured("labengine")["steps computed for A after its end"] == 0


def test_a_double_free_of_an_unshared_block_is_refused() -> None:
    table = bug("sglang-jax-994").experiments["alone"].table()
    assert table.to_dict() == {
        "two paths": {"steps that failed": 1, "finished requests": 0},
        "one release": {"steps that failed": 0, "finished requests": 1},
    }


@pytest.mark.parametrize(("num_computed", "kept", "needed"), [(8, 2, 3), (9, 2, 3), (10, 2, 3), (11, 2, 2), (12, 2, 3)])
def test_a_window_of_two_blocks_lies_in_three_unless_it_ends_a_block(num_computed: int, kept: int, needed: int) -> None:
    def num_kept(parts: Parts) -> int:
        config = EngineConfig(4, (GroupSpec(4, "sliding_window", 8),))
        [group] = parts.assemble(config, Hooks(), Journal()).manager.groups
        return -(-(num_computed + 1) // 4) - group.num_skipped_tokens(num_computed) // 4

    assert (num_kept(Parts(WindowRoundedUp).overriding(LABENGINE)), num_kept(LABENGINE)) == (kept, needed)


def test_a_page_behind_is_late_enough() -> None:
    assert bug("sglang-29860").measured("a page behind") == {"tokens found again": 8, "computed tokens": 18}
