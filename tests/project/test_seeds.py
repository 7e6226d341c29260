"""The table of seeds agrees with the workloads."""

from __future__ import annotations

import pytest

from choose_seeds import uncovered
from grounds import ALL_GROUNDS, Ground
from seeds import COVERING


def test_every_ground_has_its_seeds() -> None:
    assert [*COVERING] == [*map(str, ALL_GROUNDS)]


@pytest.mark.sweep
@pytest.mark.parametrize("ground", ALL_GROUNDS, ids=str)
def test_the_seeds_cover_all_that_sixty_cover(ground: Ground) -> None:
    lost = uncovered(ground, COVERING[str(ground)])
    assert not lost, f"run `python tests/support/choose_seeds.py`, and copy the table: not met by its seeds: {lost}"
