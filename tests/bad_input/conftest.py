"""The lab that is spoken to badly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labengine.lab import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Twelve blocks of four tokens, no weights, with one request running and one waiting."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        lab.add(token_ids=range(6), max_tokens=4)
        lab.step()
        lab.add(token_ids=range(9), max_tokens=4)
        yield lab
