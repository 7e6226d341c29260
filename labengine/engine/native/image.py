"""A compiled library as bytes (an image), opened without trusting the file that it was read from to stay as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, POINTER, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.native.layout import Op, Step, layout_difference

SUFFIXES = ("f32", "bf16")
"""Of the functions that there are for each kind of numbers."""


class ImageError(Exception):
    """These bytes are not the kernels; the message is half a sentence that says why."""


def open_image(image: bytes) -> CDLL:
    """Return the library, its functions declared and its layout compared with ours. Raises ImageError.

    What is mapped is a copy of our own: a file that is truncated later would end the process with SIGBUS.
    """
    try:
        with _private_copy(image) as path:
            kernels = CDLL(path)
    except OSError as error:
        raise ImageError(f"it cannot be loaded: {error}") from error
    try:
        _declare(kernels)
        difference = layout_difference(kernels)
    except (AttributeError, ValueError) as error:
        raise ImageError(f"it lacks a symbol: {error}") from error
    if difference is not None:
        raise ImageError(f"it was made of other sources: {difference}")
    return kernels


@contextmanager
def _private_copy(image: bytes) -> Iterator[str]:
    """A path to a copy that nobody can change, for as long as it takes to load it.

    Memory stays open once it is loaded: the loader knows libraries by their paths, and a number that is used again
    would be the same path.
    """
    try:
        number = _sealed_memory(image)
    except (OSError, AttributeError):  # there is none on macOS, nor everywhere on Linux
        with TemporaryDirectory() as folder:
            file = Path(folder) / "kernels.so"
            file.write_bytes(image)
            yield str(file)
        return
    try:
        yield f"/proc/self/fd/{number}"
    except BaseException:
        os.close(number)
        raise


def _sealed_memory(image: bytes) -> int:
    """Return the number of an open file in memory that can be mapped, and no longer written to."""
    import fcntl

    number = os.memfd_create("labengine-kernels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(number, "wb", closefd=False) as memory:
            memory.write(image)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(number)
        raise
    return number


def _declare(kernels: CDLL) -> None:
    """Say what the functions take and return. Raises AttributeError for one that is not there."""
    kernels.team_new.restype, kernels.team_new.argtypes = c_void_p, [c_int]
    kernels.team_free.restype, kernels.team_free.argtypes = None, [c_void_p]
    kernels.scratch_bytes.restype = c_int64
    kernels.scratch_bytes.argtypes = [POINTER(Op), c_int64, POINTER(Step), c_int]
    for suffix in SUFFIXES:
        run = getattr(kernels, f"run_program_{suffix}")
        run.restype, run.argtypes = None, [c_void_p, POINTER(Op), c_int64, POINTER(Step), POINTER(c_double)]
        size = getattr(kernels, f"packed_size_{suffix}")
        size.restype, size.argtypes = c_int64, [c_int64, c_int64]
        for name in ("pack", "unpack"):
            move = getattr(kernels, f"{name}_{suffix}")
            move.restype, move.argtypes = None, [c_void_p, c_void_p, c_int64, c_int64, c_int]
