"""A search in these tests ends with its first finding, since no test asks how many more it makes per second."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest


@pytest.fixture(autouse=True, scope="package")
def searches_end_with_a_finding() -> Iterator[None]:
    """Shortest first is how the small scopes are searched, and each finding is shrunk before it is reported."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SMALLER_S", "LONGER_S"):
            patch.setattr(import_module("labengine.finder.find"), name, 0.0)
        yield
