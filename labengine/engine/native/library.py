"""The compiled kernels of this machine as functions: they run programs of ops on tensors in place (csrc/program.h)."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from ctypes import CDLL, c_double
from dataclasses import dataclass
from functools import cache
from threading import Lock

import torch
from torch import Tensor

from labengine.engine.mapped_memory import MappedMemory, mapped_zeros
from labengine.engine.native.compile import CompileError, compiled_image, find_compilers, image_name, require_posix
from labengine.engine.native.image import ImageError, ImageFolder, cached_images, installed_images, open_image
from labengine.engine.native.instruction_set import instruction_set_name
from labengine.engine.native.layout import Op, Step
from labengine.engine.native.prebuilt import candidates, prebuilt_image

_opening = Lock()


@dataclass(frozen=True)
class Kernels:
    """The kernels of this process. origin: "compiled here", or where they are from."""

    library: CDLL
    instruction_set: str
    origin: str


def library() -> CDLL:
    """Return the kernels, opened once per process and compiled if necessary (some seconds). Raises CompileError."""
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
    require_posix()
    name = instruction_set_name()
    installed = _first_usable(installed_images(), image_name())
    return Kernels(installed or _cached_or_compiled(), name, "compiled here")


def _prebuilt(failure: CompileError) -> Kernels:
    """Return the fastest kernels that the package brings. Raises CompileError where there are none."""
    refusals = []
    for isa in candidates():
        try:
            kernels = open_image(prebuilt_image(isa))
        except (CompileError, ImageError) as refusal:
            refusals.append(f"the kernels for {isa.name} that came with labengine are not used: {refusal}")
            continue
        for words in refusals:
            _say(words)
        return Kernels(kernels, isa.name, "from labengine's wheel")
    raise CompileError("; ".join([str(failure), *refusals])) from failure


def _cached_or_compiled() -> CDLL:
    compilers = find_compilers()
    images, name = cached_images(), image_name(compilers)
    kept = _first_usable(images, name)
    if kept is not None:
        return kept
    _say("compiling CPU kernels for this machine (once, some seconds)")
    image = compiled_image(compilers)
    try:
        kernels = open_image(image)
    except ImageError as error:
        raise CompileError(f"the kernels were compiled, but {error}") from error
    _keep(images, name, image)
    return kernels


def _first_usable(images: ImageFolder, name: str) -> CDLL | None:
    for image in images.images(name):
        try:
            return open_image(image)
        except ImageError:
            continue  # it will be compiled anew, and replaced
    return None


def _keep(images: ImageFolder, name: str, image: bytes) -> None:
    try:
        images.keep(name, image)
    except OSError as error:
        _say(f"the CPU kernels cannot be kept, and will be compiled in each process: {error}")


def _say(words: str) -> None:
    print(f"labengine: {words}", file=sys.stderr, flush=True)


SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}
"""Dtypes with kernels, and their suffixes."""


class Team:
    """Threads that run programs together with the caller; one program at a time, other callers wait."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._library = library()
        self._team = self._library.team_new(num_threads)
        if not self._team:
            raise MemoryError(f"there is no memory for a team of {num_threads} threads")
        self._is_taken = Lock()
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._renew)

    def run(
        self, dtype: torch.dtype, ops: ctypes.Array[Op], step: Step, seconds: ctypes.Array[c_double] | None = None
    ) -> None:
        """Run a program. seconds: one per op, increased by each op's time."""
        run = getattr(self._library, f"run_program_{SUFFIXES[dtype]}")
        with self._is_taken:
            run(self._team, ops, len(ops), ctypes.byref(step), seconds)

    def _renew(self) -> None:
        """Replace the lock in a forked process, where its holder does not exist.

        The threads start with the next program.
        """
        self._is_taken = Lock()

    def scratch_bytes(self, ops: ctypes.Array[Op], step: Step) -> int:
        """Return the bytes that step.scratch needs."""
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
        assert len(rows) == n or not is_gated, "a gate and what it multiplies are packed together"
        pack(rows.data_ptr(), result[size(first, k) :].data_ptr(), len(rows), k, is_gated)
        first += len(rows)
    assert first == n, f"{n} rows were announced, {first} came"
    return result


def unpacked(packed_weight: Tensor, n: int, k: int, *, is_gated: bool = False) -> Tensor:
    """Return the matrix [n, k] of a packed one, bit by bit."""
    weight = torch.empty(n, k, dtype=packed_weight.dtype)
    unpack = getattr(library(), f"unpack_{SUFFIXES[weight.dtype]}")
    unpack(packed_weight.data_ptr(), weight.data_ptr(), n, k, is_gated)
    return weight


def aligned_empty(num_elements: int, dtype: torch.dtype) -> Tensor:
    """Return CPU memory aligned to a cache line. Torch tracks writes to it (its _version counts them)."""
    spare = 64 // dtype.itemsize
    with torch.inference_mode(False):
        memory = mapped_zeros((num_elements + spare,), dtype)
    offset = -memory.data_ptr() % 64 // dtype.itemsize
    return memory[offset : offset + num_elements]
