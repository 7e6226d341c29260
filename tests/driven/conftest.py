"""A driven engine that starts at once, for the tests of a driven lab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labengine
from stub_python import stub_python


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose vLLM is the fake one of the tests."""
    return stub_python(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def lab(stub: str) -> Iterator[labengine.Lab]:
    """A lab that drives the fake engine, with two requests that share a prefix, after two steps."""
    with labengine.drive("vllm", stub, num_blocks=12, block_size=4) as made:
        made.add(token_ids=range(9), max_tokens=4)
        made.add(token_ids=range(9), max_tokens=3)
        made.step(2)
        yield made
