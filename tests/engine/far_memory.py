"""A pool with its last blocks behind 2**31 elements; only pages that are written take memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from tempfile import TemporaryFile

import torch
from torch import Tensor

from engine.plan_builder import HandMadeRequest
from labengine.engine.kv_tensors import LayerKV

ELEMENTS = 2**31
"""Before the first block that is dealt: an offset that is counted in 32 bits turns negative there."""
MAX_BYTES = 500 * 2**20
"""What a test may make resident."""


def far_cache(folder: Path, block: tuple[int, int, int], num_blocks: int, dtype: torch.dtype) -> LayerKV:
    """Keys and values [first + num_blocks, *block] of zeros, where block `first` begins at element 2**31.

    As many elements lie before the first block: an offset that has become negative finds wrong numbers there, and
    does not end the process.
    """
    return LayerKV(*(_sparse_pool(folder, block, num_blocks, dtype) for _ in range(2)))


def first_block(block: tuple[int, int, int]) -> int:
    """The block that begins at element 2**31."""
    return ELEMENTS // torch.Size(block).numel()


def _sparse_pool(folder: Path, block: tuple[int, int, int], num_blocks: int, dtype: torch.dtype) -> Tensor:
    """A file that is all hole: no system refuses to map it, however little memory there is."""
    size = torch.Size(block).numel()
    with TemporaryFile(dir=folder) as file:
        file.truncate((2 * ELEMENTS + num_blocks * size) * dtype.itemsize)
        memory = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=dtype)
    return memory[ELEMENTS:].view(-1, *block)


def move(requests: list[HandMadeRequest], by: int) -> None:
    """Have the requests use blocks so much higher."""
    for request in requests:
        request.tables = tuple(tuple(block + by for block in table) for table in request.tables)
