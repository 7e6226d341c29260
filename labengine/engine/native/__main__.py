"""`python -m labengine.engine.native`: compile the kernels into the package, for all its users on this kind of machine.

They then need neither a compiler nor a cache, which is useful on a server for a class.
"""

from __future__ import annotations

import sys

from labengine.engine.native.compile import CompileError, compiled_image, find_compilers, installed_file, keep


def main() -> int:
    """Compile, and print the file's path. Return 1 if that fails."""
    try:
        print(keep(installed_file(), compiled_image(find_compilers())))
    except (CompileError, OSError) as error:
        print(f"labengine: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
