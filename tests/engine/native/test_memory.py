"""Memory for packed weights: aligned, disjoint, and kept while any piece is in use; and what a process holds in all."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from itertools import pairwise

import pytest
import torch

from labengine.engine import mapped_memory
from labengine.engine.mapped_memory import MappedMemory


def test_pieces_are_aligned_and_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_memory, "MAPPING_BYTES", 8192)
    memory = MappedMemory()
    sizes = [1, 63, 64, 65, 3000, 8192, 100_000, 7, 1]
    pieces = [
        memory.take(size, dtype).fill_(number)
        for number, size in enumerate(sizes)
        for dtype in (torch.float32, torch.bfloat16)
    ]
    assert [piece.numel() for piece in pieces] == [size for size in sizes for _ in range(2)]
    assert all(piece.data_ptr() % 64 == 0 for piece in pieces)
    for number, piece in enumerate(pieces):
        assert (piece == number // 2).all(), "another piece was written over it"
    spans = sorted((piece.data_ptr(), piece.data_ptr() + piece.nbytes) for piece in pieces)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_mapping_goes_with_its_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[object]] = []

    class Mapping(mapped_memory.mmap.mmap):
        def __new__(cls, *args: object, **kwargs: object) -> Mapping:
            mapping = super().__new__(cls, *args, **kwargs)  # type: ignore[arg-type]
            kept.append(weakref.ref(mapping))
            return mapping

    monkeypatch.setattr(mapped_memory.mmap, "mmap", Mapping)
    memory = MappedMemory()
    first, second = memory.take(10, torch.float32).fill_(1), memory.take(10, torch.float32).fill_(2)
    del memory, first
    gc.collect()
    assert len(kept) == 1 and kept[0]() is not None and (second == 2).all()
    del second
    gc.collect()
    assert kept[0]() is None


def test_a_system_without_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mapped_memory.mmap, "mmap", full)
    with pytest.raises(MemoryError, match="4 MiB left"):
        mapped_memory.mapped_zeros((1024, 1024), torch.float32)


def test_a_system_without_huge_pages_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mapping(mapped_memory.mmap.mmap):
        def madvise(self, *_: object) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mapped_memory.mmap, "mmap", Mapping)
    assert (mapped_memory.mapped_zeros((1024, 1024), torch.float32) == 0).all()


LOADS = """
import psutil, torch, labengine
from labengine.engine.model_runner import ModelRunner
from labengine.engine.tokenizer import HuggingFaceTokenizer
(torch.ones(64, 64) @ torch.ones(64, 64)).sum()
held = [psutil.Process().memory_info().rss]
settings = {"num_blocks": 16, "block_size": 16, "device": "cpu", "dtype": torch.bfloat16}
runner = ModelRunner.load(labengine.model_path("smollm2"), **settings)
held.append(psutil.Process().memory_info().rss)
tokenizer = HuggingFaceTokenizer(labengine.model_path("smollm2"))
tokenizer.encode("loads it")
held.append(psutil.Process().memory_info().rss)
print((held[1] - held[0]) / 2**20, (held[2] - held[1]) / 2**20)
"""


def test_nothing_is_kept_of_what_was_only_needed_to_load() -> None:
    """257 MiB of bf16 are packed, 64 of them are the end of the last mapping at most; nothing else is large.

    A tokenizer takes 20 MiB, and 50 while its file is parsed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    said = subprocess.run([sys.executable, "-c", LOADS], env=environment, check=True, capture_output=True, text=True)
    weights, tokenizer = map(float, said.stdout.split())
    assert 250 < weights < 345 and tokenizer < 38
