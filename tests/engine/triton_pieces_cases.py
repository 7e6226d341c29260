"""test_pieces.py's tests of what attention does beside padded rows, through our Triton kernels. Run by test_triton.py.

Interpreted only: on a GPU test_cuda.py has real graphs.
"""

from __future__ import annotations

import pytest

from engine.test_pieces import (  # noqa: F401
    make,
    test_chunks_and_decodes_by_pieces,
    test_rows_that_a_larger_step_left_write_nothing,
)
from engine.triton_graphs_cases import tiny_gemma  # noqa: F401
from labengine.engine.attention import AttentionBackend
from labengine.engine.attention.triton import TritonAttention, is_interpreted


@pytest.fixture
def backend() -> type[AttentionBackend]:
    assert is_interpreted()
    return TritonAttention
