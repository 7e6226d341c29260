"""Triton is made for Linux: elsewhere its tests are skipped, and on Linux its absence fails them."""

from __future__ import annotations

import sys

import pytest


def needs_triton() -> None:
    """For a module's first lines, or a test's."""
    if not sys.platform.startswith("linux"):
        pytest.skip("Triton is made for Linux", allow_module_level=True)
    import triton  # noqa: F401 (an error here is the failure that is meant)
