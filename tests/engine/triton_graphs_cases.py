"""test_graphs.py's tests of what attention does with padding, through our Triton kernels. Run by test_triton.py.

Interpreted, or compiled without a device: on a GPU test_cuda.py has real graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.test_graphs import (  # noqa: F401
    make,
    test_decodes_of_every_size_run_through_the_smallest_graph_that_holds_them,
    test_padding_of_a_graph_reads_nothing,
    test_padding_of_a_graph_writes_nowhere,
    test_rows_that_a_larger_step_left_in_a_graph_become_padding,
    test_stale_columns_of_a_graphs_tables_are_not_read,
)
from engine.triton_device import DEVICE
from labengine.engine.attention import AttentionBackend
from labengine.engine.attention.triton import TritonAttention


@pytest.fixture
def capturable() -> type[AttentionBackend]:
    assert DEVICE.type == "cpu"
    return TritonAttention


@pytest.fixture(scope="session")
def tiny_gemma(tiny_model: Callable[..., Path]) -> Path:
    """As many groups as the other tests' model, in half as many layers."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    return tiny_model("gemma3", num_hidden_layers=4, sliding_window=8, layer_types=kinds, query_pre_attn_scalar=24)
