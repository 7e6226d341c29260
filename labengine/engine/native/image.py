"""A compiled library as bytes (an image), opened independently of later changes of its file; folders of images."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL, POINTER, c_double, c_int, c_int64, c_void_p
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.engine.abandoned_files import remove_abandoned
from labengine.engine.native.layout import Op, Step, layout_difference
from labengine.engine.native.trust import file_distrust, folder_distrust, installed_distrust
from labengine.engine.sources.cache import cache_root
from labengine.system.atomic_write import TEMPORARY, write_atomically

READING = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags of open(), as far as the system has them."""
SUFFIXES = ("f32", "bf16")
"""Suffixes of the functions for each dtype."""


class ImageError(Exception):
    """The bytes are not the kernels; the message is half a sentence with the reason."""


def open_image(image: bytes) -> CDLL:
    """Return the library, with its functions declared and its layout compared with layout.py. Raises ImageError.

    A private copy is mapped: truncating a mapped file would end the process with SIGBUS.
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
    """Give a path to a copy that no other process can change, while it is being loaded.

    The memory stays open once it is loaded: the loader identifies libraries by path, and a reused file descriptor
    would be the same path.
    """
    if sys.platform == "win32":
        yield str(_kept_copy(image))
        return
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


def _kept_copy(image: bytes) -> Path:
    """Return a file in the user's cache: Windows lets nobody change, truncate or delete a library that is loaded."""
    kept = cache_root() / "native" / f"{sha256(image).hexdigest()}.dll"
    if not kept.is_file() or kept.read_bytes() != image:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, image)
    return kept


def _sealed_memory(image: bytes) -> int:
    """Return the descriptor of a file in memory that can be mapped, but no longer written to."""
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
    """Declare the functions' arguments and results. Raises AttributeError for a missing one."""
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


class ImageFolder:
    """Files NAME-SHA256.so; NAME identifies sources, flags and machine, SHA256 is the file's own digest.

    An image that is read here is intact, and no other user could have written it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def images(self, name: str) -> Iterator[bytes]:
        """Yield the images of that name; damaged and distrusted ones are skipped."""
        try:
            folder = self._path.resolve(strict=True)
            files = sorted(folder.glob(f"{name}-*.so")) if self.distrust() is None else []
        except OSError:
            return
        for file in files:
            image = self._read(file)
            if image is not None and file.name == _file_name(name, image):
                yield image

    def keep(self, name: str, image: bytes) -> Path:
        """Write the image to the folder, replacing others of that name. Raises OSError, PermissionError included."""
        self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = self._path.resolve()
        distrust = self.distrust()
        if distrust is not None:
            raise PermissionError(distrust)
        kept = folder / _file_name(name, image)
        remove_abandoned(folder.glob(TEMPORARY))
        write_atomically(kept, image, mode=0o644)
        for other in folder.glob(f"{name}-*.so"):
            if other != kept:
                with suppress(OSError):
                    other.unlink()
        return kept

    def distrust(self) -> str | None:
        """Return why no image here is loaded or kept; None if they are.

        Raises OSError, also where there is no folder.
        """
        return folder_distrust(self._path.resolve(strict=True))

    def _distrust_file(self, status: os.stat_result) -> str | None:
        return file_distrust(status)

    def _read(self, file: Path) -> bytes | None:
        """Return the file's content; None if it is distrusted. The opened file is checked, not the path."""
        try:
            number = os.open(file, READING)
            with open(number, "rb") as opened:
                return opened.read() if self._distrust_file(os.fstat(number)) is None else None
        except OSError:
            return None


class InstalledImages(ImageFolder):
    """The installed package's folder: trusted like the Python files beside it, with any owner."""

    def distrust(self) -> str | None:
        """Return why no image here is loaded or kept; see ImageFolder."""
        path = self._path.resolve(strict=True)
        reason = installed_distrust(path.stat(), path.parent.stat())
        return None if reason is None else f"{path}: {reason}"

    def _distrust_file(self, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return "it is no regular file"
        return installed_distrust(status, Path(__file__).stat())


def cached_images() -> ImageFolder:
    """Return the user's folder, for images compiled on first use."""
    return ImageFolder(cache_root() / "native")


def installed_images() -> InstalledImages:
    """Return the package's folder, for the image of `python -m labengine.engine.native`, which all its users share."""
    return InstalledImages(Path(__file__).with_name("compiled"))


def _file_name(name: str, image: bytes) -> str:
    return f"{name}-{sha256(image).hexdigest()}.so"
