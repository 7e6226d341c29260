"""The kernels of this machine: those of the installed package, those in the user's cache, or compiled now."""

from __future__ import annotations

import sys
from ctypes import CDLL
from functools import cache
from threading import Lock

from labengine.engine.native.compile import CompileError, compiled_image, find_compilers, image_name, require_posix
from labengine.engine.native.image import ImageError, open_image
from labengine.engine.native.images import ImageFolder, cached_images, installed_images

_opening = Lock()


def library() -> CDLL:
    """Return the kernels, opened once in a process; compiled, if need be, in some seconds. Raises CompileError."""
    with _opening:
        return _opened()


@cache
def _opened() -> CDLL:
    require_posix()
    installed = _first_usable(installed_images(), image_name())
    return installed or _cached_or_compiled()


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
