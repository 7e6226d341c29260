"""vLLM 57610 and its fix 57613: hits by divergence, and what edition labengine does about it."""

from __future__ import annotations

import pytest

from labengine import Lab
from labengine.scenarios import bug
from labengine.scenarios.vllm_57610_sparse_retention import extended

SCENARIO = bug("vllm-57610")

DENSE = [12, 16, 16, 16, 16, 20, 20, 20]
"""Divergence at d: both groups hold all, the hit ends at the last multiple of 4 before min(d, 29)."""


def hits(column: str) -> list[int]:
    return [count for row, count in SCENARIO.measured(column).items() if row.startswith("hit")]


def test_hits_at_each_divergence() -> None:
    """A hit at 20 needs window blocks from 12, one at 16 from 8, one at 12 from 4."""
    assert hits("dense") == DENSE
    assert hits("interval 0") == [0, 0, 0, 0, 0, 20, 20, 20]
    assert hits("57613") == [0, 16, 16, 16, 16, 20, 20, 20], "the cliff is one unit of 4 tokens lower"


def test_blocks_kept_of_a_prompt() -> None:
    """Blocks of 2: 12 to 20 is a run of 4, and a unit of 4 tokens is 2 more."""
    assert [SCENARIO.measured(column.name)["window blocks kept"] for column in SCENARIO.columns] == [4, 6, 10]


def test_the_reports_own_figures() -> None:
    table = SCENARIO.experiments["as measured"].table()
    assert table["interval 0"] == {"hit of 4100": 0, "hit of 4110": 4096}
    assert table["57613"] == {"hit of 4100": 4064, "hit of 4110": 4096}


def test_a_second_edit_hits_what_the_first_one_missed() -> None:
    table = SCENARIO.experiments["again"].table()
    assert table["interval 0"] == {"edit 1": 0, "edit 2": 16, "edit 3": 16}


def labengine_hits(interval: int | None) -> list[int]:
    settings = {**SCENARIO.settings, "retention_interval": interval}
    with Lab("simulated", **settings) as lab:
        SCENARIO.play(lab)
        return [count for row, count in SCENARIO.measure(lab).items() if row.startswith("hit")]


@pytest.mark.parametrize(
    ("interval", "expected"),
    [(None, DENSE), (0, [0, 0, 0, 0, 0, 20, 20, 20]), (16, [0, 16, 16, 16, 16, 20, 20, 20])],
)
def test_edition_labengine_is_dense_by_default_and_takes_vllms_rule_at_an_interval(
    interval: int | None, expected: list[int]
) -> None:
    assert labengine_hits(interval) == expected


def test_an_edit_has_tokens_of_its_own_behind_what_it_shares() -> None:
    assert extended(range(22), 3, 1) == [0, 1, 2, *range(50_000_100, 50_000_108)]
