"""The machine's compiled kernels as functions that run programs of ops on tensors in place (csrc/program.h)."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ctypes import CDLL, POINTER, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import torch
from torch import Tensor

from labengine.engine.mapped_memory import MappedMemory, mapped_zeros
from labengine.engine.native.compile import (
    PREBUILT,
    CompileError,
    cached_file,
    compiled_image,
    find_compilers,
    installed_file,
    keep,
)
from labengine.engine.native.instruction_set import instruction_set_name, runnable_instruction_sets
from labengine.engine.native.layout import Op, Step

_opening = Lock()


@dataclass(frozen=True)
class Kernels:
    """The kernels of this process. origin: "compiled here", or where they come from."""

    library: CDLL
    instruction_set: str
    origin: str


def library() -> CDLL:
    """Return the kernels, opened once per process and compiled if necessary (a few seconds). Raises CompileError."""
    return kernels_in_use().library


def kernels_in_use() -> Kernels:
    """Return the kernels with their instruction set and origin; see library()."""
    with _opening:
        return _opened()


@cache
def _opened() -> Kernels:
    try:
        return _compiled_here()
    except CompileError as failure:
        return _prebuilt(failure)


def _compiled_here() -> Kernels:
    return Kernels(_kept() or _newly_compiled(), instruction_set_name(), "compiled here")


def _kept() -> CDLL | None:
    for find in (installed_file, cached_file):
        with suppress(CompileError):
            return _load(find())
    return None


def _newly_compiled() -> CDLL:
    compilers = find_compilers()
    _say("compiling CPU kernels for this machine (once, a few seconds)")
    image = compiled_image(compilers)
    try:
        return _load(keep(cached_file(), image))
    except OSError as error:
        _say(f"the CPU kernels cannot be cached, so every process will compile them: {error}")
    with TemporaryDirectory(prefix="labengine-") as folder:
        return _load(keep(Path(folder) / "kernels.so", image))


def _prebuilt(failure: CompileError) -> Kernels:
    """Return the fastest kernels that the package brings. Raises CompileError if there are none."""
    reasons = [str(failure)]
    for isa in runnable_instruction_sets() if PREBUILT.is_dir() else ():
        try:
            return Kernels(_load(PREBUILT / f"{isa.name}.so"), isa.name, "from labengine's wheel")
        except CompileError as refusal:
            reasons.append(f"the prebuilt kernels for {isa.name} cannot be used: {refusal}")
            _say(reasons[-1])
    raise CompileError("; ".join(reasons)) from failure


def _load(file: Path) -> CDLL:
    """Return the library with its functions declared. Raises CompileError."""
    try:
        kernels = CDLL(str(file))
        _declare(kernels)
    except (OSError, AttributeError) as error:
        raise CompileError(f"they cannot be loaded: {error}") from error
    return kernels


def _declare(kernels: CDLL) -> None:
    """Declare the functions' arguments and results. Raises AttributeError for a missing one."""
    kernels.team_new.restype, kernels.team_new.argtypes = c_void_p, [c_int]
    kernels.team_free.restype, kernels.team_free.argtypes = None, [c_void_p]
    kernels.scratch_bytes.restype = c_int64
    kernels.scratch_bytes.argtypes = [POINTER(Op), c_int64, POINTER(Step), c_int]
    for suffix in SUFFIXES.values():
        run = getattr(kernels, f"run_program_{suffix}")
        run.restype, run.argtypes = None, [c_void_p, POINTER(Op), c_int64, POINTER(Step), POINTER(c_double)]
        size = getattr(kernels, f"packed_size_{suffix}")
        size.restype, size.argtypes = c_int64, [c_int64, c_int64]
        for name in ("pack", "unpack"):
            move = getattr(kernels, f"{name}_{suffix}")
            move.restype, move.argtypes = None, [c_void_p, c_void_p, c_int64, c_int64, c_int]


def _say(words: str) -> None:
    print(f"labengine: {words}", file=sys.stderr, flush=True)


SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""Suffixes of kernels by dtype."""


class Team:
    """Threads that run programs together with the caller, one program at a time; other callers wait."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._library = library()
        self._team = self._library.team_new(num_threads)
        if not self._team:
            raise MemoryError(f"not enough memory for a team of {num_threads} threads")
        self._is_taken = Lock()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._renew)

    def run(
        self, dtype: torch.dtype, ops: ctypes.Array[Op], step: Step, seconds: ctypes.Array[c_double] | None = None
    ) -> None:
        """Run a program. seconds: one number per op, to which the op's time is added."""
        run = getattr(self._library, f"run_program_{SUFFIXES[dtype]}")
        with self._is_taken:
            run(self._team, ops, len(ops), ctypes.byref(step), seconds)

    def _renew(self) -> None:
        """Replace the lock in a forked process, where the thread that held it does not exist.

        The threads start with the next program.
        """
        self._is_taken = Lock()

    def scratch_bytes(self, ops: ctypes.Array[Op], step: Step) -> int:
        """Return the number of bytes that step.scratch needs."""
        num_bytes: int = self._library.scratch_bytes(ops, len(ops), ctypes.byref(step), self.num_threads)
        return num_bytes


@cache
def team(num_threads: int) -> Team:
    """Return the process's team of that size. Its threads sleep while no program runs."""
    return Team(num_threads)


def packed(weight: Tensor, memory: MappedMemory | None = None, *, is_gated: bool = False) -> Tensor:
    """Return a matrix [n, k] in the kernels' order of reading. is_gated: gate above up, interleaved."""
    return packed_pieces([weight], weight.shape, weight.dtype, memory or MappedMemory(), is_gated=is_gated)


def packed_pieces(
    pieces: Iterable[Tensor], shape: Sequence[int], dtype: torch.dtype, memory: MappedMemory, *, is_gated: bool = False
) -> Tensor:
    """Return a matrix [n, k] in the kernels' order of reading; see weights.Packing."""
    (n, k), kernels, suffix = shape, library(), SUFFIXES[dtype]
    size, pack = getattr(kernels, f"packed_size_{suffix}"), getattr(kernels, f"pack_{suffix}")
    result = memory.take(size(n, k), dtype)
    first = 0
    for piece in pieces:
        rows = piece.contiguous()
        assert len(rows) == n or not is_gated, "a gate is packed together with the rows it multiplies"
        pack(rows.data_ptr(), result[size(first, k) :].data_ptr(), len(rows), k, is_gated)
        first += len(rows)
    assert first == n, f"{n} rows were announced, but {first} came"
    return result


def unpacked(packed_weight: Tensor, n: int, k: int, *, is_gated: bool = False) -> Tensor:
    """Return the unpacked matrix [n, k], bit for bit."""
    weight = torch.empty(n, k, dtype=packed_weight.dtype)
    unpack = getattr(library(), f"unpack_{SUFFIXES[weight.dtype]}")
    unpack(packed_weight.data_ptr(), weight.data_ptr(), n, k, is_gated)
    return weight


def aligned_empty(num_elements: int, dtype: torch.dtype) -> Tensor:
    """Return CPU memory aligned to a cache line. Torch counts writes to it in its _version."""
    spare = 64 // dtype.itemsize
    with torch.inference_mode(False):
        memory = mapped_zeros((num_elements + spare,), dtype)
    offset = -memory.data_ptr() % 64 // dtype.itemsize
    return memory[offset : offset + num_elements]
