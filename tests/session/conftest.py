"""The lab that most of these tests use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labengine.lab import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Twelve blocks of four tokens, no weights."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        yield lab
