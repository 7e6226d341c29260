"""The labs that are spoken to badly: one without weights, and the real model on both ways to compute a step."""

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


@pytest.fixture(scope="module")
def loaded_module_by_module() -> Iterator[Lab]:
    lab = Lab("smollm2", num_blocks=64, block_size=4, attention="torch")
    yield lab
    lab.close()


@pytest.fixture(params=["one native program", "module by module"])
def smollm2(request: pytest.FixtureRequest) -> Lab:
    """The real model with an empty pool, on both ways to compute a step on a CPU."""
    is_native = request.param == "one native program"
    lab: Lab = request.getfixturevalue("loaded_smollm2" if is_native else "loaded_module_by_module")
    lab.reset()
    return lab
