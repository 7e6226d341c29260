"""Unpack files brought along, and load FA3's library in its environment.

python unpack.py cache ARCHIVE FOLDER     put the files of a .tar.xz into a folder, which may have others
python unpack.py fa3 ARCHIVE LIBRARY      unpack a .xz unless it is the library itself, and load that
"""

from __future__ import annotations

import lzma
import shutil
import sys
import tarfile
from pathlib import Path


def unpack_cache(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def load_fa3(archive: Path, library: Path) -> None:
    if archive != library:
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_name(f"{library.name}.part")  # renamed when it is complete
        with lzma.open(archive) as packed, part.open("wb") as file:
            shutil.copyfileobj(packed, file, 2**20)
        part.replace(library)
    import flash_attn
    import flash_attn_interface

    print(f"{flash_attn.__version__}, loaded from {library}: {flash_attn_interface.forward.__name__}")


if __name__ == "__main__":
    {"cache": unpack_cache, "fa3": load_fa3}[sys.argv[1]](*map(Path, sys.argv[2:]))
