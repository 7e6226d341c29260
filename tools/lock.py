"""Rewrite constraints.txt: one set of pins for every platform and Python. Arguments go to uv (--upgrade)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LOCK = Path("constraints.txt")
EXTRAS = ("models", "lab", "events", "exports", "test", "dev", "site", "lite")
HEADER = """\
# The versions this project is tested with, for Linux, macOS and Windows and Python 3.11 to 3.14: constraints, which uv
# and pip take. `make lock` makes them anew for a changed pyproject.toml; `make lock LOCK_FLAGS=--upgrade` moves on.
# What torch's build brings along (CUDA's libraries) is not here: torch pins it, each build its own.
"""


def main(arguments: list[str]) -> None:
    """Resolve against the public index and the current pins, and write the pins that matter."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--no-config", "--universal", "--python-version=3.11"]
    command += ["pyproject.toml", *(f"--extra={extra}" for extra in EXTRAS)]
    command += ["--quiet", "--no-header", "--no-annotate", f"--output-file={LOCK}", *arguments]
    subprocess.run(command, check=True)
    pins = [line for line in LOCK.read_text().splitlines() if line[0] != "#" and matters(line)]
    LOCK.write_text(HEADER + "\n".join(pins) + "\n")


def matters(pin: str) -> bool:
    """Return False for CUDA's libraries, and for a platform or Python without torch."""
    return re.search(r"^(nvidia|cuda)-|sys_platform == 'emscripten'|>= '3\.15'", pin) is None


if __name__ == "__main__":
    main(sys.argv[1:])
