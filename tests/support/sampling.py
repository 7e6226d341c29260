"""Of many combinations a fixed sample runs at every change, the others with the sweeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(combinations: Iterable[tuple[Any, ...]], sample: Collection[tuple[Any, ...]]) -> list[Any]:
    """Every combination as a parameter set; those outside the sample are marked as a sweep."""
    every = [*combinations]
    assert all(one in every for one in sample), "the sample holds a combination that is none"
    return [pytest.param(*one, marks=[] if one in sample else pytest.mark.sweep) for one in every]
