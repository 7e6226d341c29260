"""The compiled kernels, callable: a program of ops in, tensors written in place. See csrc/program.h."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_double
from functools import cache
from threading import Lock

import torch
from torch import Tensor

from labengine.engine.native.kernels import library
from labengine.engine.native.layout import Op, Step
from labengine.engine.native.memory import PackedMemory

SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""The dtypes that there are kernels for."""


class Team:
    """Threads that run programs together, the caller among them; one program at a time, others wait."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._library = library()
        self._team = self._library.team_new(num_threads)
        if not self._team:
            raise MemoryError(f"there is no memory for a team of {num_threads} threads")
        self._is_taken = Lock()
        os.register_at_fork(after_in_child=self._renew)

    def run(
        self, dtype: torch.dtype, ops: ctypes.Array[Op], step: Step, seconds: ctypes.Array[c_double] | None = None
    ) -> None:
        """Walk through the program. seconds: one per op, to which what each op takes is added."""
        run = getattr(self._library, f"run_program_{SUFFIXES[dtype]}")
        with self._is_taken:
            run(self._team, ops, len(ops), ctypes.byref(step), seconds)

    def _renew(self) -> None:
        """In a forked process: whoever held the lock is not here. The threads start anew with the first program."""
        self._is_taken = Lock()

    def scratch_bytes(self, ops: ctypes.Array[Op], step: Step) -> int:
        """What step.scratch has to point at."""
        num_bytes: int = self._library.scratch_bytes(ops, len(ops), ctypes.byref(step), self.num_threads)
        return num_bytes


@cache
def team(num_threads: int) -> Team:
    """Return the process's team of that size. Its threads sleep while there is nothing to do."""
    return Team(num_threads)


def packed(weight: Tensor, memory: PackedMemory | None = None, *, is_gated: bool = False) -> Tensor:
    """Return a matrix [n, k] as the kernels read it, one stream from front to back. is_gated.

    Gate above up, interleaved.
    """
    n, k = weight.shape
    kernels, suffix = library(), SUFFIXES[weight.dtype]
    result = (memory or PackedMemory()).take(getattr(kernels, f"packed_size_{suffix}")(n, k), weight.dtype)
    source = weight.contiguous()
    getattr(kernels, f"pack_{suffix}")(source.data_ptr(), result.data_ptr(), n, k, is_gated)
    return result


def unpacked(packed_weight: Tensor, n: int, k: int, *, is_gated: bool = False) -> Tensor:
    """Return the matrix [n, k] again, bit for bit."""
    weight = torch.empty(n, k, dtype=packed_weight.dtype)
    unpack = getattr(library(), f"unpack_{SUFFIXES[weight.dtype]}")
    unpack(packed_weight.data_ptr(), weight.data_ptr(), n, k, is_gated)
    return weight


def aligned_empty(num_elements: int, dtype: torch.dtype) -> Tensor:
    """Return uninitialized memory on the CPU that begins with a cache line. Torch counts what is written to it."""
    spare = 64 // dtype.itemsize
    with torch.inference_mode(False):
        memory = torch.empty(num_elements + spare, dtype=dtype, device="cpu")
    offset = -memory.data_ptr() % 64 // dtype.itemsize
    return memory[offset : offset + num_elements]
