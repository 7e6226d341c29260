"""vLLM 45238: what prompts with a shared prefix hit, by where it ends."""

from __future__ import annotations

import pytest

from labengine import Lab
from labengine.scenarios import bug
from labengine.scenarios.report import recorded_runs

SCENARIO = bug("vllm-45238")


def test_without_the_junction_no_prompt_hits_and_with_it_one_misses() -> None:
    """10 shared tokens are 2 blocks of 4; the last boundary of 14 tokens is 12."""
    assert list(SCENARIO.measured("last boundary alone").values()) == [0, 0, 0, 0, 0]
    assert list(SCENARIO.measured("junction").values()) == [0, 0, 8, 8, 8]


def test_a_shared_prefix_past_the_last_boundary_is_hit_either_way() -> None:
    table = SCENARIO.experiments["13 shared"].table()
    assert [list(column.values()) for column in table.columns.values()] == [[0, 12, 12, 12, 12]] * 2


def test_the_reports_own_sizes() -> None:
    """1500 shared tokens are 2 blocks of 528; the last boundary of 2200 is 2112."""
    table = SCENARIO.experiments["as measured"].table()
    assert list(table["last boundary alone"].values()) == [0, 0, 0, 0, 0]
    assert list(table["junction"].values()) == [0, 0, 1056, 1056, 1056]


def test_vllms_own_scheduler_finds_what_the_junction_column_does() -> None:
    (run,) = recorded_runs("vllm-45238")
    assert run.version.startswith("vllm 0.32") and run.rows["as it is"] == SCENARIO.measured("junction")


@pytest.mark.parametrize("interval", [None, 0])
def test_edition_labengine_notes_the_junction_too(interval: int | None) -> None:
    with Lab("simulated", **{**SCENARIO.settings, "retention_interval": interval}) as lab:
        SCENARIO.play(lab)
        assert list(SCENARIO.measure(lab).values()) == [0, 0, 8, 8, 8]
