"""Unpack FA3's library, if it came packed, and load it: python load_fa3.py ARCHIVE LIBRARY, with FA3's environment."""

from __future__ import annotations

import sys
from pathlib import Path

from unpack import unpack


def main() -> None:
    archive, library = map(Path, sys.argv[1:])
    if archive != library:
        unpack(archive, library)
    import flash_attn
    import flash_attn_interface

    print(f"{flash_attn.__version__}, loaded from {library}: {flash_attn_interface.forward.__name__}")


if __name__ == "__main__":
    main()
