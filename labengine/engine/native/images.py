"""Where images are kept between processes: each under the digest of what it was made from, and its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from labengine.engine.atomic_write import ASIDE, remove_abandoned, write_atomically
from labengine.engine.native.trust import file_distrust, folder_distrust, installed_distrust
from labengine.engine.sources.cache import cache_root


class ImageFolder:
    """Files NAME-SHA256.so; NAME stands for sources, flags and machine, SHA256 is the file's own.

    What is read here is trusted: no other user could have written it, and it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def images(self, name: str) -> Iterator[bytes]:
        """Yield the images of that name; those that are damaged, or not to be trusted, are passed over."""
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
        """Write the image to the disk, in place of others of that name. Raises OSError, PermissionError included."""
        self._path.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder = self._path.resolve()
        distrust = self.distrust()
        if distrust is not None:
            raise PermissionError(distrust)
        kept = folder / _file_name(name, image)
        remove_abandoned(folder.glob(ASIDE))
        write_atomically(kept, image, mode=0o644)
        for other in folder.glob(f"{name}-*.so"):
            if other != kept:
                with suppress(OSError):
                    other.unlink()
        return kept

    def distrust(self) -> str | None:
        """Why nothing here is loaded, nor kept; None where it is. Raises OSError, also where there is no folder."""
        return folder_distrust(self._path.resolve(strict=True))

    def _distrust_file(self, status: os.stat_result) -> str | None:
        return file_distrust(status)

    def _read(self, file: Path) -> bytes | None:
        """What the file holds; None if it is not to be trusted. Asked is what was opened, not what has its name now."""
        try:
            number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(number, "rb") as opened:
                return opened.read() if self._distrust_file(os.fstat(number)) is None else None
        except OSError:
            return None


class InstalledImages(ImageFolder):
    """The installed package's own folder: as trusted as the Python files beside it, whoever they belong to."""

    def distrust(self) -> str | None:
        """See ImageFolder."""
        path = self._path.resolve(strict=True)
        reason = installed_distrust(path.stat(), path.parent.stat())
        return None if reason is None else f"{path}: {reason}"

    def _distrust_file(self, status: os.stat_result) -> str | None:
        if not stat.S_ISREG(status.st_mode):
            return "it is no regular file"
        return installed_distrust(status, Path(__file__).stat())


def cached_images() -> ImageFolder:
    """Return the user's own, where images are kept as they are compiled."""
    return ImageFolder(cache_root() / "native")


def installed_images() -> InstalledImages:
    """Return the package's, where `python -m labengine.engine.native` keeps one for all who use the package."""
    return InstalledImages(Path(__file__).with_name("compiled"))


def _file_name(name: str, image: bytes) -> str:
    return f"{name}-{sha256(image).hexdigest()}.so"
