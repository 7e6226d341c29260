"""`python -m labengine.engine.native`: compile the kernels into the package, for all who use it on such a machine.

They need no compiler and no cache then: on a server for a class, say.
"""

from __future__ import annotations

import sys

from labengine.engine.native.compile import CompileError, compiled_image, find_compilers, image_name, require_posix
from labengine.engine.native.images import installed_images


def main() -> int:
    """Print where they are. Returns 1 where they could not be compiled, or not be written."""
    try:
        require_posix()
        print(installed_images().keep(image_name(), compiled_image(find_compilers())))
    except (CompileError, OSError) as error:
        print(f"labengine: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
