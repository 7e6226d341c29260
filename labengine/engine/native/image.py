"""A compiled library as bytes (an image), opened independently of later changes of its file; folders of images."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL, POINTER, c_double, c_int, c_int64, c_void_p
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from labengine.atomic_write import TEMPORARY, write_atomically
from labengine.engine.abandoned_files import remove_abandoned
from labengine.engine.native.layout import Op, Step, layout_difference
from labengine.engine.sources.cache import cache_root


def folder_distrust(folder: Path) -> str | None:
    """Return why another user could put files into `folder`, or replace it; None where none could.

    folder: without links (Path.resolve). Root does not count as another user. Raises OSError.
    """
    for place in (folder, *folder.parents):
        status = place.stat()
        if status.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to another user"
        is_sticky = bool(status.st_mode & stat.S_ISVTX) and place != folder  # in /tmp, what is mine stays mine
        if _others_can_write(status) and not is_sticky:
            return f"{place} can be written to by other users (chmod go-w {place})"
    return None


def file_distrust(status: os.stat_result) -> str | None:
    """Return why another user could have written this file, which is in a trusted folder; None where none could."""
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "it can be written to by other users" if _others_can_write(status) else None


def _others_can_write(status: os.stat_result) -> bool:
    for_all, for_group = status.st_mode & stat.S_IWOTH, status.st_mode & stat.S_IWGRP
    return bool(for_all or (for_group and not _is_private(status.st_gid)))


def _is_private(group_id: int) -> bool:
    """Return True for a group whose only member is the user, as many systems create it."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return user.pw_gid == group_id and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


def installed_distrust(status: os.stat_result, code: os.stat_result) -> str | None:
    """Return why a user who cannot write the package's code could have written a file (or folder); None if none could.

    code: a Python file (or folder) of the installed package, which runs in any case.
    """
    if status.st_uid not in (code.st_uid, os.geteuid(), 0):
        return "it belongs to another user than the package"
    writers, writers_of_code = (found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for found in (status, code))
    if writers & ~writers_of_code or (writers & stat.S_IWGRP and status.st_gid != code.st_gid):
        return "it can be written to by more users than the package"
    return None


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
            number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
