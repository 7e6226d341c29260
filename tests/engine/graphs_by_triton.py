"""test_graphs.py's tests of what attention does with padding, through our Triton kernels; run by that file.

They are interpreted, which has to be asked for (TRITON_INTERPRET=1) before Triton is imported.
"""

from __future__ import annotations

import pytest

from engine.test_graphs import (  # noqa: F401
    make,
    test_decodes_of_every_size_run_through_the_smallest_graph_that_holds_them,
    test_padding_of_a_graph_reads_nothing,
    test_padding_of_a_graph_writes_nowhere,
    test_rows_that_a_larger_step_left_in_a_graph_become_padding,
    test_stale_columns_of_a_graphs_tables_are_not_read,
)
from labengine.engine.attention import AttentionBackend
from labengine.engine.attention.triton import TritonAttention, is_interpreted


@pytest.fixture
def capturable() -> type[AttentionBackend]:
    assert is_interpreted()
    return TritonAttention
