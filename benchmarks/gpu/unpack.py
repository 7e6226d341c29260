"""Unpack what was brought along: python unpack.py ARCHIVE TARGET (a file from .xz, a folder from .tar.xz)."""

from __future__ import annotations

import lzma
import shutil
import sys
import tarfile
from pathlib import Path


def unpack(archive: Path, target: Path) -> None:
    """Replace a file when it is complete; put an archive's files into a folder, which may have others."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if archive.name.endswith(".tar.xz"):
        with tarfile.open(archive) as packed:
            packed.extractall(target, filter="data")
        return
    part = target.with_name(f"{target.name}.part")
    with lzma.open(archive) as packed_file, part.open("wb") as file:
        shutil.copyfileobj(packed_file, file, 2**20)
    part.replace(target)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
