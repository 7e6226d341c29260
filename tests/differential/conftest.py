"""vLLM's own classes, for tests that run beside them, and the recordings, for those that read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differential import vllm_golden
from differential.vllm_process import VARIABLE, VERSION, VllmProcess, named_interpreter


@pytest.fixture(scope="module")
def vllm(request: pytest.FixtureRequest) -> Iterator[VllmProcess]:
    """A process with vLLM; VERSIONS of a module names the releases that it accepts."""
    python = named_interpreter()
    if python is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}; what was recorded of it was compared")
    with VllmProcess(python, getattr(request.module, "VERSIONS", (VERSION,))) as process:
        yield process


@pytest.fixture(scope="module", autouse=True)
def recordings_are_dropped() -> Iterator[None]:
    """No test of another module keeps what was read."""
    yield
    vllm_golden.recorded.cache_clear()
