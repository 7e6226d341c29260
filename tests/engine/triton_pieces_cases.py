"""test_pieces.py's tests of what attention does beside padded rows, through our Triton kernels. Run by test_triton.py.

Interpreted, or compiled without a device: on a GPU test_cuda.py has real graphs.
"""

from __future__ import annotations

import pytest

from engine.test_pieces import (  # noqa: F401
    make,
    test_chunks_and_decodes_by_pieces,
    test_rows_that_a_larger_step_left_write_nothing,
)
from engine.triton_device import DEVICE
from engine.triton_graphs_cases import tiny_gemma  # noqa: F401
from labengine.engine.attention import AttentionBackend
from labengine.engine.attention.triton import TritonAttention


@pytest.fixture
def backend() -> type[AttentionBackend]:
    assert DEVICE.type == "cpu"
    return TritonAttention
