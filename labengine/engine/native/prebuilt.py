"""Kernels that the wheel of a platform brings along: for machines without a compiler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from labengine.engine.native.compile import CompileError, check_image, sources_digest
from labengine.engine.native.image import InstalledImages, cached_images
from labengine.engine.native.instruction_set import (
    NATIVE,
    InstructionSet,
    requested_instruction_set,
    runnable_instruction_sets,
)

FOLDER = Path(__file__).with_name("prebuilt_images")
"""Where the images lie; `make wheels` fills it, in wheels only."""


def prebuilt_name(isa: InstructionSet, system: str = sys.platform) -> str:
    """Return a name for system, instructions and sources: the kernels of another release have another one."""
    return f"{system}-{isa.name}-{sources_digest()}"


def candidates() -> Iterator[InstructionSet]:
    """Yield the sets that run here and that the package claims to bring, the fastest first.

    A set that LABENGINE_CPU names is one in any case.
    """
    if not FOLDER.is_dir():
        return
    for isa in runnable_instruction_sets():
        if requested_instruction_set().name != NATIVE or _files_for(isa):
            yield isa


def prebuilt_image(isa: InstructionSet) -> bytes:
    """Return an intact image that computes. Raises CompileError.

    Trying an image takes a process, so one that passed is kept in the user's cache, where there is one.
    """
    name = prebuilt_name(isa)
    try:
        image = next(_folder().images(name), None)
        if image is None:
            raise CompileError(_why_none(isa, name))
        if image not in cached_images().images(name):
            check_image(image, "the wheel's compiler")
            with suppress(OSError):
                cached_images().keep(name, image)
    except OSError as error:
        raise CompileError(str(error)) from error
    return image


def _folder() -> InstalledImages:
    return InstalledImages(FOLDER)


def _files_for(isa: InstructionSet) -> list[Path]:
    """Return the files for exactly this set: "x86-64-v4-bf16" begins with another one's name."""
    digits = "[0-9a-f]"
    return [*FOLDER.glob(f"{sys.platform}-{isa.name}-{digits * 24}-*.so")]


def _why_none(isa: InstructionSet, name: str) -> str:
    files = _files_for(isa)
    if any(file.name.startswith(name) for file in files):
        return _folder().distrust() or "the file is damaged, or other users can write to it (install labengine again)"
    if files:
        return "they were made of other sources (install labengine again)"
    return "there are none in this package"
